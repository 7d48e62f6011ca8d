//! What must hold for every history of claims, found by chance rather than by example.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod claims;
mod extremes;
mod naive;
mod oracle;
mod promises;
mod waits;
mod world;
