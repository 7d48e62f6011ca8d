//! The control plane of real servers: what one of them writes is in force on all, and in services that follow them.

mod auth;
pub(crate) mod decisions;
pub(crate) mod fleet;
mod follower;
mod outage;
mod seen;
mod walk;
pub(crate) mod world;
