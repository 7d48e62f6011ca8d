//! The control plane of real servers: what one of them writes is in force on all, and in services that follow them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod auth;
mod decisions;
mod fleet;
mod follower;
mod outage;
mod seen;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/server.rs"]
mod server;
mod walk;
mod world;
