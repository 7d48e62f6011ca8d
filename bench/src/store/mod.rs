//! Counters in Redis: the store driven directly, built as the server builds it.
//!
//! Redis has one core, and the process that drives the store the other.

mod bytes;
mod cluster;
mod cost;
mod driven;
mod hot;
mod leased;
mod pinned;
mod plain;

use std::process::Command;

use crate::server::process::{on_load_core, this_program};

/// The argument with which this program drives the store.
pub const CHILD: &str = "drive-store";

pub fn run() {
    if Command::new("redis-server").arg("--version").output().is_err() {
        println!("redis: skipped, redis-server is missing (scripts/setup.sh bench installs it)");
        return;
    }
    let status = on_load_core(this_program()).arg(CHILD).status();
    assert!(status.is_ok_and(|status| status.success()), "the process that drives the store failed");
}

/// All of it, in a process that has the load's core.
pub fn drive() {
    let redis = pinned::redis();
    cost::run(&redis);
    hot::run(&redis);
    leased::run(&redis);
    bytes::run(&redis);
    drop(redis);
    cluster::run();
}
