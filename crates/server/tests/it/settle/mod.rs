//! Check, work, settle: real servers, on memory and on one Redis, under callers that run at the same time, repeat themselves and die.

mod caller;
mod costs;
mod inside;
mod storms;

use tollgate_testing::{Cluster, Redis, Server, eventually};

use crate::new_server;

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
            let server = new_server().rules(rules).listen(&["http", "admin"]).args(&args).start();
            let body = r#"{"attributes":{"warm":"up"}}"#;
            let warm = || crate::http::post(&server.url("http", caller::CHECK), body).json()["source"] == "store";
            assert!(eventually(|| warm().then_some(())).is_some(), "a server does not find its store");
            server
        };
        (0..count).map(|_| start()).collect()
    }
}
