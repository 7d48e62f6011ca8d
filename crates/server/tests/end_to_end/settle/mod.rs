//! Check, work, settle: real servers, in memory and on Redis, with callers that run concurrently, retry and are killed.

pub(crate) mod client;
mod concurrency;
mod costs;
mod storms;
mod unanswered;

use tollgate_testing::{Cluster, Redis, Server, eventually};

use crate::new_server;

/// The store of a test's servers.
pub(crate) enum StoreKind {
    /// The memory of the only server.
    Memory,
    Redis(Redis),
    Cluster(Cluster),
}

impl StoreKind {
    /// Starts this many servers with these rules, and waits until they are connected to their store.
    pub(crate) fn start_servers(&mut self, rules: &str, count: usize) -> Vec<Server> {
        let store = match self {
            StoreKind::Memory => "memory".to_owned(),
            StoreKind::Redis(redis) => redis.url(),
            StoreKind::Cluster(cluster) => cluster.url(),
        };
        let start = || {
            // A deadline that a busy machine does not exceed.
            let args = ["--store", &store, "--store-deadline", "1s", "--receipt-keys", "a secret of these tests"];
            let server = new_server().rules(rules).listen(&["http", "admin"]).args(&args).start();
            let body = r#"{"attributes":{"warm":"up"}}"#;
            let is_connected =
                || crate::http::post(&server.url("http", client::CHECK), body).json()["source"] == "store";
            assert!(eventually(|| is_connected().then_some(())).is_some(), "a server is not connected to its store");
            server
        };
        (0..count).map(|_| start()).collect()
    }
}
