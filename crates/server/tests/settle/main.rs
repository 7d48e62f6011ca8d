//! Check, work, settle: real servers, on memory and on one Redis, under callers that run at the same time, repeat themselves and die.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod caller;
mod costs;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/http.rs"]
mod http;
mod inside;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/server.rs"]
mod server;
mod storms;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_testing::{Cluster, Redis};

use crate::server::{Server, Start, eventually};

/// What the servers of a test share.
pub(crate) enum Shared {
    /// Nothing: there is one, with counters in memory.
    Nothing,
    Redis(Redis),
    Cluster(Cluster),
}

impl Shared {
    /// So many servers with these rules, which have found their store.
    pub(crate) fn servers(&mut self, rules: &str, count: usize) -> Vec<Server> {
        let store = match self {
            Shared::Nothing => "memory".to_owned(),
            Shared::Redis(redis) => redis.url(),
            Shared::Cluster(cluster) => cluster.url(),
        };
        let start = || {
            // Time is not what is tested here, and the machine may be busy.
            let args = ["--store", &store, "--store-deadline", "1s", "--receipt-keys", "a secret of these tests"];
            let server = Start::new().rules(rules).listen(&["http", "admin"]).args(&args).ready();
            let body = r#"{"attributes":{"warm":"up"}}"#;
            let warm = || http::post(&server.url("http", caller::CHECK), body).json()["source"] == "store";
            assert!(eventually(|| warm().then_some(())).is_some(), "a server does not find its store");
            server
        };
        (0..count).map(|_| start()).collect()
    }
}

/// These tests have many callers, on machines with few processors: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed has released the machine too.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
