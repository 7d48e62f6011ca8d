//! Observability of decisions: state of this server, sampling, and exchange within the fleet.

pub mod events;
pub mod fleet;
pub mod history_file;
pub mod observability;
pub mod sampler;

pub use observability::{KeyVisibility, Observability, ObservabilityConfig};
