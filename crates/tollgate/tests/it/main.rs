//! The library: limiters, sessions, throttles, receipts and the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod adjust;
#[cfg(feature = "redis")]
mod adjust_redis;
#[cfg(feature = "control")]
mod control;
mod fleet_shedder;
mod limiter;
#[cfg(feature = "receipts")]
mod receipts;
#[cfg(feature = "redis")]
mod redis_counters;
#[cfg(feature = "receipts")]
mod regions;
mod reloads;
mod seed;
mod session;
mod support;
mod tenants;
mod throttle;
mod witness;
