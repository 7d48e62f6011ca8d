//! The server `tollgate`: its settings and its process.
//!
//! [`SERVE`] is the command `tollgate serve`. It reads the settings ([`config`]), builds the components and runs them ([`app`]).

#![allow(missing_docs, reason = "internal to the binary")]

pub mod app;
pub mod config;
mod memory_health;
mod outage_state;
mod serve;
mod snapshots;
mod store_health;

pub use serve::COMMAND as SERVE;
