//! What operators decide while the service runs, and how it reaches a limiter.
//!
//! Everything is a [`Record`]. [`Controls`] applies records one by one: tiers, overrides, emergencies and blocks take effect at
//! once, rules and switches become a [`Layer`](crate::Layer) above the rule files. Records travel as [`lines`] of JSON. A
//! `Follower` (feature `follow`) reads them from a server and keeps a [`Limiter`](crate::Limiter) up to date.

#[cfg(feature = "follow")]
mod follow;

#[cfg(feature = "follow")]
pub use follow::{BadUrl, Follower, Status};
pub use tollgate_records::*;
