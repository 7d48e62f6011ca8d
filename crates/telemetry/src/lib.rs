//! Metrics, logs, traces and health of a server.
//!
//! This crate defines what is counted and its names. It depends on none of the components that count.

#![allow(missing_docs, reason = "internal to the server: names and the table of metrics say it")]

pub mod health;
pub mod log;
mod log_throttle;
mod masked;
pub mod metrics;
pub mod trace;
mod unmatched;

pub use health::Health;
pub use log_throttle::LogThrottle;
pub use masked::Masked;
pub use unmatched::UnmatchedChecks;
