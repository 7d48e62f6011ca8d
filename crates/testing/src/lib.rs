//! Real servers for tests: started by the test on free ports of 127.0.0.1, in directories of their own, and ended by their ids
//! when they are dropped. And what stands between them and the tested: a relay that can fail in the ways that networks do.

#![allow(clippy::panic, reason = "a test says what is wrong by panicking")]

pub mod cluster;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod relay;
pub mod resp;
pub mod sentinel;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

pub use cluster::Cluster;
pub use postgres::Postgres;
pub use process::{Process, free_port};
pub use redis::Redis;
pub use relay::Relay;
pub use sentinel::Sentinel;

/// How long what another process does is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until there is something to see, or it takes too long. Another process has its own clock, so there is nothing to move
/// here but to look again.
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const STEP: Duration = Duration::from_millis(5);
    let (looking, end) = channel::<()>();
    // Looking may itself take long, so steps are not counted. It ends with `looking`.
    let patience = thread::spawn(move || end.recv_timeout(PATIENCE));
    let (_keep, pause) = channel::<()>();
    while !patience.is_finished() {
        if let Some(found) = look() {
            return Some(found);
        }
        let _ = pause.recv_timeout(STEP);
    }
    drop(looking);
    None
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    if eventually(|| holds().then_some(())).is_none() {
        panic!("{what}: not within {} s", PATIENCE.as_secs());
    }
}
