//! Three servers on one PostgreSQL and one Redis: what is written through one is in force on all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_testing::postgres::Database;
use tollgate_testing::{Postgres, Redis, Server, eventually, sleep};

use crate::control::world::{now, server_on, set_limit, try_decided};

/// The servers, and what they share.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) database: Database,
    _redis: Redis,
}

pub(crate) const SERVERS: usize = 3;
/// How soon a change is in force everywhere if nobody is notified, in microseconds.
const UNTOLD: u64 = 10_000_000;

pub(crate) fn fleet() -> Fleet {
    let (database, redis) = (Postgres::database(), Redis::start());
    let store = redis.url();
    let servers = (0..SERVERS).map(|_| server_on(database.url(), &["--store", &store])).collect();
    Fleet { servers, database, _redis: redis }
}

impl Fleet {
    /// How long it takes until all servers have this limit for a caller, since a moment.
    #[track_caller]
    pub(crate) fn until_all(&self, caller: &str, limit: u64, since: u64) -> u64 {
        for server in &self.servers {
            let there = || (try_decided(server, caller)?.0 == limit).then_some(());
            if eventually(there).is_none() {
                panic!("{caller} has {:?}, not {limit}", try_decided(server, caller));
            }
        }
        now() - since
    }
}

pub(crate) fn figures(what: &str, mut micros: Vec<u64>) -> u64 {
    micros.sort_unstable();
    let at = |share: usize| micros[(micros.len() * share / 100).min(micros.len() - 1)];
    println!(
        "{what}: {} changes, p50 {} ms, p99 {} ms, longest {} ms",
        micros.len(),
        at(50) / 1_000,
        at(99) / 1_000,
        at(100) / 1_000
    );
    at(99)
}

#[test]
fn a_change_that_nobody_is_notified_of_is_seen_all_the_same() {
    let fleet = fleet();
    set_limit(&fleet.servers[0], "a", 7);
    fleet.until_all("a", 7, now());
    // As if the notification had been lost: somebody writes without one.
    fleet.database.query(
        "BEGIN; UPDATE control SET generation = generation + 1; \
         UPDATE records SET generation = (SELECT generation FROM control), \
         document = '{\"overrides\":[{\"rule\":\"per-key\",\"requests_per_unit\":8,\"unit\":\"minute\"}]}' WHERE name = 'a'; COMMIT",
    );
    let took = fleet.until_all("a", 8, now());
    println!("in force on 3 servers without a notification: {} ms", took / 1_000);
    assert!(took < UNTOLD, "{took}");

    // Whoever listens is cut off again and again.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                fleet.database.query(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()",
                );
                sleep(Duration::from_millis(20));
            }
        });
        let took = (0..5).map(|n| {
            set_limit(&fleet.servers[0], "a", 20 + n);
            fleet.until_all("a", 20 + n, now())
        });
        let took = took.collect();
        let slowest = figures("in force on 3 servers while listeners are cut off", took);
        over.store(true, Ordering::SeqCst);
        assert!(slowest < UNTOLD);
    });
}
