//! Observability of decisions: state of this server, sampling, and exchange within the fleet.

pub mod fleet;
pub mod observability;
pub mod sampler;

pub use observability::{KeyVisibility, Observability, ObservabilityConfig};
