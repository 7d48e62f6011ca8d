//! What operators see: logs, metrics, traces.

pub(crate) mod log;
pub(crate) mod masked;
pub(crate) mod metrics;
pub(crate) mod seldom;
pub(crate) mod trace;

#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use masked::Masked;
#[allow(unused_imports, reason = "parts that are not joined yet")]
pub(crate) use seldom::Seldom;
