//! Connections: where they come from, who serves them, and how they end.

pub(crate) mod closing;
pub(crate) mod stream;
pub(crate) mod tls;

#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use closing::Closing;
#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use stream::Stream;
