//! What operators decide while the service runs, and how it reaches those who decide about requests.
//!
//! Everything is a [`Record`]: a kind, a domain, a name and a document. [`Controls`] takes records one by one and makes of them
//! what a [`Limiter`](crate::Limiter) decides by: tiers and overrides of callers, emergencies and blocks at once; rules and switches
//! as a [`Layer`](tollgate_rules::Layer) above the rule files. Records travel as [`lines`] of JSON: the snapshot that is kept on
//! disk, the one that a server hands out, and what follows it. A `Follower` (feature `follow`) takes them from a server and keeps a
//! limiter up to date.

mod controls;
pub mod documents;
#[cfg(feature = "follow")]
mod follow;
pub mod lines;
mod moment;
mod record;

pub use controls::{Applied, Controls};
pub use documents::Fault;
#[cfg(feature = "follow")]
pub use follow::{BadUrl, Follower, Status};
pub use moment::Moment;
pub use record::{Kind, Record};
