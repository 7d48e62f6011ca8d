//! What operators see: logs, metrics, traces.

pub(crate) mod fleet;
pub(crate) mod log;
pub(crate) mod masked;
pub(crate) mod metrics;
pub(crate) mod pulse;
pub(crate) mod seldom;
pub(crate) mod sight;
pub(crate) mod trace;

pub(crate) use masked::Masked;
pub(crate) use seldom::Seldom;
pub(crate) use sight::{Keys, Sight};
