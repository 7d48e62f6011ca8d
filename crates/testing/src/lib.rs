//! Real servers for tests: Tollgate, Redis, PostgreSQL. A test starts them on free ports of 127.0.0.1, in directories of their own.
//! Dropping one kills it, by its process id. [`Relay`] is a network between them that can fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

pub mod cluster;
mod docs;
pub mod machine;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod redis;
pub mod relay;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod time;

pub use cluster::Cluster;
pub use docs::assert_generated;
pub use postgres::Postgres;
pub use process::{Process, free_port};
pub use redis::Redis;
pub use relay::Relay;
pub use sentinel::Sentinel;
pub use server::{Server, ServerBuilder};
pub use time::{TIMEOUT, eventually, sleep, until};

/// The number in an environment variable, for runs that are longer than usual.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a whole number")))
}
