//! Connections of a server: listeners, worker threads, TLS and graceful shutdown.

#![allow(missing_docs, reason = "internal to the server")]

pub mod address;
pub mod budget;
pub mod closing;
pub mod http1;
pub mod listener;
pub mod stream;
mod timeout;
pub mod tls;
pub mod workers;

pub use address::{Address, AddressError};
pub use closing::Closing;
pub use stream::Stream;
pub use timeout::timeout;
