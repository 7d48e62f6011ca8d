//! A layer for tower: limits in front of axum, tonic, hyper, or any other service for HTTP.
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use std::sync::Arc;
//! use axum::{Router, routing::get};
//! use http::HeaderName;
//! use tollgate::tower::{TollgateLayer, extract};
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
//! **What it does with a request.** Its attributes are found in its head ([`extract`], [`TollgateLayer::attributes`]) and decided by
//! the limiter, once.
//!
//! - *Refused:* 429 with `Retry-After`, the headers that [`Told`](crate::told::Told) names and a problem as its body; 503 where
//!   nobody could count it and its rules refuse it then; 422 where its idempotency key is that of another request. Calls of gRPC
//!   (`application/grpc`) are answered by headers alone, with status 8, 14 or 3, a message, and `grpc-retry-pushback-ms`. The inner
//!   service is not asked.
//! - *Admitted:* it goes to the inner service, held back before where a `leaky_bucket` wants requests evenly spaced (at most
//!   [`max_delay`](TollgateLayer::max_delay)). The answer gets the same headers.
//! - *Not to be decided* as it is, for instance since its domain is none: it passes, and is [counted and told](TollgateLayer::on_undecided).
//!
//! The layer has no errors of its own: its error is the inner service's.
//!
//! **What a request took** stays in this process. Slots of `concurrent` limits are held until the response body has ended or is
//! dropped, or the future before that, as when a client hangs up; also when the handler panics. The handler's future and body are
//! dropped before their slot is free. While a request is inside, a task on its runtime says so to the store three times in each
//! hold, whether or not somebody reads the body; so a stream may be longer than the hold, and a slot whose process crashed is free after
//! one. There are as many such tasks as requests inside. A status of 5xx, an error of the service or of the body, a panic, and a
//! status of gRPC that is the server's fault are failures, which rules that say `refund: on_failure` refund. What a request really
//! cost its handler reports by [`Spent`].
//!
//! **What it needs.** A runtime of tokio's with its time enabled, for delays, for slots that are kept for longer than a hold, and for a
//! store that waits. Without one, in memory, slots are still held and free at their end. An upgraded connection (101) has ended for the
//! layer when its answer has.

mod answers;
mod attributes;
mod body;
pub mod extract;
mod future;
mod gate;
mod guard;
mod layer;
mod service;
mod spent;
mod stats;

use std::future::Future;
use std::pin::Pin;

pub use attributes::{Attributes, Extract};
pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use layer::TollgateLayer;
pub use service::Tollgate;
pub use spent::Spent;
pub use stats::{Stats, Undecided};

/// A future that waits for a store.
type Settling<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
