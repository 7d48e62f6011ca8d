//! Connections: where they come from, who serves them, and how they end.

pub(crate) mod address;
pub(crate) mod budget;
pub(crate) mod closing;
pub(crate) mod http1;
pub(crate) mod listener;
pub(crate) mod stream;
pub(crate) mod tls;
mod within;
pub(crate) mod workers;

pub(crate) use address::Address;
pub(crate) use closing::Closing;
pub(crate) use stream::Stream;
pub(crate) use within::within;
