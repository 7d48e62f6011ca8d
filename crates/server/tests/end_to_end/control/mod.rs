//! The control plane of real servers: a write to one of them is in force on all, and in services that follow them.

mod auth;
pub(crate) mod bans;
pub(crate) mod decisions;
pub(crate) mod fleet;
mod follower;
mod guardrails;
mod outage;
mod pending;
mod quotas;
mod starts;
pub(crate) mod support;
mod top_keys;
mod versions;
