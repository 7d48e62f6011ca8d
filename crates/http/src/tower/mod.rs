//! A tower layer: limits in front of axum, tonic, hyper, or any other HTTP service.
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use std::sync::Arc;
//! use axum::{Router, routing::get};
//! use http::HeaderName;
//! use tollgate_http::tower::{TollgateLayer, extract};
//! use tollgate::{Limiter, MemoryConfig, Ruleset};
//!
//! const RULES: &str = "
//! domain: shop
//! entity: api_key
//! rules:
//!   - {name: per-key, key: [api_key], limit: 100/minute}
//!   - {name: in-flight, key: [api_key], limit: 20 concurrent}
//! ";
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (rules, _warnings) = Ruleset::from_text(RULES, 1).map_err(|problems| format!("{problems:?}"))?;
//! let limiter = Arc::new(Limiter::new(rules, MemoryConfig::default().build()));
//! let layer = TollgateLayer::new(limiter)
//!     .extract(extract::header(HeaderName::from_static("x-api-key")).named("api_key"))
//!     .extract(extract::endpoint());
//!
//! let router: Router = Router::new()
//!     .route("/orders", get(async || "orders"))
//!     .layer(layer)
//!     .route("/health", get(async || "well")); // added after the layer: without limits
//! # let _ = router;
//! # Ok(())
//! # }
//! ```
//!
//! **Requests.** The attributes of a request come from its head ([`extract`], [`TollgateLayer::attributes`]). The
//! limiter decides each request once.
//!
//! - *Refused:* 429 with `Retry-After`, the headers of [`ResponseStyle`](crate::response::ResponseStyle), and a problem
//!   document as the body; 503 if the limiter can't count the request and its rules refuse it in that case; 422 for a
//!   conflict of idempotency keys. gRPC calls (`application/grpc`) get headers only: status 8, 14 or 3, a message, and
//!   `grpc-retry-pushback-ms`. The inner service is not called.
//! - *Admitted:* the request goes to the inner service, after a delay if a `leaky_bucket` spaces requests (at most
//!   [`max_delay`](TollgateLayer::max_delay)). The response gets the same headers.
//! - *Undecided:* a request that can't be decided, for instance because its domain is unknown, passes, and is
//!   [counted and reported](TollgateLayer::on_undecided).
//!
//! The layer has no errors of its own: its error type is the inner service's.
//!
//! **Receipts** stay in this process. Slots of `concurrent` limits are held until the response body ends or is dropped,
//! or the future before that, for instance when a client disconnects; also when the handler panics. The handler's
//! future and body are dropped before their slot is released. While a request is inside, a task extends its slots three
//! times per hold, whether or not the body is polled: a stream may be longer than the hold, and the slot of a crashed
//! process is free after one hold. There is one such task per request. A 5xx status, an error of the service or the
//! body, a panic, and a gRPC status that blames the server are failures, which rules with `refund: on_failure` refund.
//! The handler reports the real cost through [`Spent`].
//!
//! **Requirements.** A tokio runtime with its timer enabled, for delays, for extending slots, and for a store that
//! waits. Without a runtime, with counters in memory, slots are still held and released. An upgraded connection (101)
//! ends for the layer when its response does.

mod attributes;
mod body;
pub mod extract;
mod future;
mod gate;
mod guard;
mod layer;
mod responses;
mod service;
mod shed;
mod spent;
mod stats;

use std::future::Future;
use std::pin::Pin;

pub use attributes::{Attributes, Extract};
pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use layer::TollgateLayer;
pub use responses::{grpc as grpc_refusal, is_grpc, is_grpc_failure};
pub use service::Tollgate;
pub use shed::{Adaptive, AdaptiveLayer, Shed, ShedBody, ShedFuture, ShedLayer};
pub use spent::Spent;
pub use stats::{Stats, Undecided};

/// A boxed future that may wait for a store.
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
