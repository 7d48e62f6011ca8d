//! Control-plane records: what operators decide while the service runs.
//!
//! Everything is a [`Record`]: a kind, a domain, a name and a JSON document. [`Controls`] applies records one by one and turns them
//! into what a limiter decides by: tiers, overrides, emergencies and blocks as [`Tenants`](tollgate_rules::Tenants), rules and
//! switches as a [`Layer`](tollgate_rules::Layer) above the rule files. Records travel as [`lines`] of JSON: in snapshots on disk, in
//! the snapshot that a server sends, and in the feed of changes after it.
//!
//! This crate opens no file and no connection, and reads no clock.

mod controls;
pub mod documents;
pub mod lines;
mod record;
mod rfc3339;

pub use controls::{Controls, ControlsDifference, Effect};
pub use documents::{FieldFault, FieldFaults};
pub use record::{Record, RecordKind};
pub use rfc3339::Rfc3339;
pub use tollgate_rules::tenants::{DifferenceCount, TenantsDifference};
