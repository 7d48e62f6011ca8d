//! Events of changes, and the sinks of all events: the file that defines them, and their health.

mod audit;
mod config;
mod file;

pub use audit::AuditFollower;
pub use file::EventsFile;
