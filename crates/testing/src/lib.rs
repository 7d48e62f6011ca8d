//! Real servers for tests: started by the test on free ports of 127.0.0.1, in directories of their own, and ended by their ids
//! when they are dropped.

#![allow(clippy::panic, reason = "a test says what is wrong by panicking")]

pub mod redis;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Child;
use std::sync::mpsc::channel;
use std::time::Duration;

pub use redis::Redis;

/// A process that ends with the test.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        // One that has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()) {
        Ok(address) => address.port(),
        Err(error) => panic!("no free port: {error}"),
    }
}

/// How long what another process does is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until there is something to see, or it takes too long. Another process has its own clock, so there is nothing to move
/// here but to look again.
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const STEP: Duration = Duration::from_millis(5);
    let (_keep, pause) = channel::<()>();
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if let Some(found) = look() {
            return Some(found);
        }
        let _ = pause.recv_timeout(STEP);
    }
    None
}
