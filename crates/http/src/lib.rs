//! Tollgate over HTTP: responses for decisions ([`response`]), problem documents ([`problem`]), and a tower layer
//! ([`tower`](crate::tower), feature `tower`).
//!
//! | feature | |
//! | --- | --- |
//! | `tower` | a layer for HTTP services: the module `tower` |
//! | `axum` | the same, with the matched route's path and the peer's address from axum |

pub mod date;
pub mod problem;
pub mod request_target;
pub mod response;
#[cfg(feature = "tower")]
pub mod tower;
mod writer;

/// Compiles the examples of the library's page.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
