//! The control plane in a service: what operators change at run time, applied to a limiter.
//!
//! Everything is a [`Record`]. [`Controls`] applies records one by one: tiers, overrides, emergencies and blocks take effect at
//! once, rules and switches become a [`Layer`](crate::Layer) above the rule files. Records are sent as [`lines`] of JSON. A
//! `Follower` (feature `follow`) receives them from a server and applies them to a [`Limiter`](crate::Limiter).

#[cfg(feature = "follow")]
mod follow;

#[cfg(feature = "follow")]
pub use follow::{EndpointError, Follower, FollowerStatus};
pub use tollgate_records::*;
