//! Observability of decisions: state of this server, sampling, and exchange within the fleet.

pub mod events;
pub mod fleet;
mod fleet_events;
pub mod history_file;
mod hot_keys;
pub mod observability;
mod region_durations;
pub mod sampler;
pub mod shares;
mod signals;

pub use fleet::AuditPosition;
pub use region_durations::RegionDurations;

pub use observability::{KeyVisibility, Observability, ObservabilityConfig};
