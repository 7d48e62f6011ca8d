//! Connections: where they come from, who serves them, and how they end.

pub(crate) mod closing;
pub(crate) mod http1;
pub(crate) mod stream;
mod within;

#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use closing::Closing;
#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use stream::Stream;
pub(crate) use within::within;
