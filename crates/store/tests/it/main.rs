//! The stores in memory, the stores that wrap stores, and the conformance suite on both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod ahead;
mod bounds;
mod conformance;
mod debits;
mod deny_cache;
mod differential;
mod eviction;
mod guarded;
mod leased;
mod leased_conform;
mod memory;
mod snapshot;
mod summed;
