//! Several servers on one Redis, a Redis Cluster or a primary that sentinels watch; and what becomes of their callers when those
//! fail under load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod calls;
mod exact;
mod faults;
mod figures;
mod fleet;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/http.rs"]
mod http;
mod load;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/server.rs"]
mod server;
mod trial;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// These tests measure time, on machines with few processors: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed has released the machine too.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
