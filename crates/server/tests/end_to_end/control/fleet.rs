//! Three servers on one PostgreSQL and one Redis: a change through one is in force on all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_testing::postgres::Database;
use tollgate_testing::{Postgres, Redis, Server, eventually, sleep};

use crate::control::support::{now, server_on, set_limit, try_limit};

/// Servers that share a store of record and counters.
pub(crate) struct ControlFleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) database: Database,
    _redis: Redis,
}

pub(crate) const SERVERS: usize = 3;
/// The time within which a change is in force everywhere without a notification, in microseconds.
const MAX_POLL_DELAY: u64 = 10_000_000;

impl ControlFleet {
    pub(crate) fn start() -> ControlFleet {
        let (database, redis) = (Postgres::database(), Redis::start());
        let store = redis.url();
        let servers = (0..SERVERS).map(|_| server_on(database.url(), &["--store", &store])).collect();
        ControlFleet { servers, database, _redis: redis }
    }

    /// Waits until all servers have this limit for a caller. Returns the microseconds since the given time.
    #[track_caller]
    pub(crate) fn wait_for_limit(&self, caller: &str, limit: u64, since: u64) -> u64 {
        for server in &self.servers {
            let is_in_force = || (try_limit(server, caller)?.0 == limit).then_some(());
            if eventually(is_in_force).is_none() {
                panic!("{caller} has {:?}, not {limit}", try_limit(server, caller));
            }
        }
        now() - since
    }
}

/// Prints percentiles of durations, and returns the 99th.
pub(crate) fn print_percentiles(what: &str, mut micros: Vec<u64>) -> u64 {
    micros.sort_unstable();
    let percentile = |percent: usize| micros[(micros.len() * percent / 100).min(micros.len() - 1)];
    println!(
        "{what}: {} changes, p50 {} ms, p99 {} ms, longest {} ms",
        micros.len(),
        percentile(50) / 1_000,
        percentile(99) / 1_000,
        percentile(100) / 1_000
    );
    percentile(99)
}

#[test]
fn a_change_without_a_notification_is_found_by_polling() {
    let fleet = ControlFleet::start();
    set_limit(&fleet.servers[0], "a", 7);
    fleet.wait_for_limit("a", 7, now());
    // As if the notification had been lost: a write without one.
    fleet.database.query(
        "BEGIN; UPDATE control SET generation = generation + 1; \
         UPDATE records SET generation = (SELECT generation FROM control), \
         document = '{\"overrides\":[{\"rule\":\"per-key\",\"requests_per_unit\":8,\"unit\":\"minute\"}]}' WHERE name = 'a'; COMMIT",
    );
    let took = fleet.wait_for_limit("a", 8, now());
    println!("in force on 3 servers without a notification: {} ms", took / 1_000);
    assert!(took < MAX_POLL_DELAY, "{took}");

    // The listening connections are terminated again and again.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                fleet.database.query(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()",
                );
                sleep(Duration::from_millis(20));
            }
        });
        let took = (0..5).map(|n| {
            set_limit(&fleet.servers[0], "a", 20 + n);
            fleet.wait_for_limit("a", 20 + n, now())
        });
        let took = took.collect();
        let slowest = print_percentiles("in force on 3 servers while listening connections are terminated", took);
        stop.store(true, Ordering::SeqCst);
        assert!(slowest < MAX_POLL_DELAY);
    });
}
