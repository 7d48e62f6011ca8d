//! What operators see: logs, metrics, traces.

pub(crate) mod metrics;
