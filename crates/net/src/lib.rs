//! Connections of a server: listeners, worker threads, TLS and graceful shutdown.

#![allow(missing_docs, reason = "internal to the server")]

pub mod address;
pub mod budget;
pub mod client;
pub mod closing;
pub mod descriptors;
mod fingerprint;
pub mod http1;
pub mod listener;
mod recorded;
mod slots;
pub mod stream;
mod timeout;
pub mod tls;
pub mod workers;

pub use address::{Address, AddressError};
pub use closing::Closing;
pub use slots::Slot;
pub use stream::Stream;
pub use timeout::timeout;
