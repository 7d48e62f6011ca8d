//! A layer for tower: limits in front of axum, tonic, hyper, or any other service for HTTP.

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
