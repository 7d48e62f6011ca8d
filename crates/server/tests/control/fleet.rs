//! Three servers on one PostgreSQL and one Redis: what is written through one is in force on all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tollgate::Timestamp;
use tollgate::control::Moment;
use tollgate_testing::postgres::Database;
use tollgate_testing::{Postgres, Redis};

use crate::server::{Server, eventually};
use crate::world::{alone, decided, get, limited, now, pause, put, server_on, set_limit, try_decided};

/// The servers, and what they share.
struct Fleet {
    servers: Vec<Server>,
    database: Database,
    _redis: Redis,
}

const SERVERS: usize = 3;
/// How soon a change is in force everywhere, and how soon if nobody is notified; in microseconds.
const SOON: u64 = 1_000_000;
const UNTOLD: u64 = 10_000_000;

fn fleet() -> Fleet {
    let (database, redis) = (Postgres::database(), Redis::start());
    let store = redis.url();
    let servers = (0..SERVERS).map(|_| server_on(database.url(), &["--store", &store])).collect();
    Fleet { servers, database, _redis: redis }
}

impl Fleet {
    /// How long it takes until all servers have this limit for a caller, since a moment.
    #[track_caller]
    fn until_all(&self, caller: &str, limit: u64, since: u64) -> u64 {
        for server in &self.servers {
            let there = || (try_decided(server, caller)?.0 == limit).then_some(());
            if eventually(there).is_none() {
                panic!("{caller} has {:?}, not {limit}", try_decided(server, caller));
            }
        }
        now() - since
    }
}

fn figures(what: &str, mut micros: Vec<u64>) -> u64 {
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
fn a_change_is_in_force_on_every_server_within_a_second() {
    let _alone = alone();
    let fleet = fleet();
    let took = (0..100).map(|n| {
        let (caller, limit) = (format!("caller-{}", n % 10), 10_000 + n);
        set_limit(&fleet.servers[n as usize % SERVERS], &caller, limit);
        fleet.until_all(&caller, limit, now())
    });
    let took = took.collect();
    assert!(figures("in force on 3 servers after the answer", took) < SOON);
}

#[test]
fn a_change_that_nobody_is_notified_of_is_seen_all_the_same() {
    let _alone = alone();
    let fleet = fleet();
    set_limit(&fleet.servers[0], "a", 7);
    fleet.until_all("a", 7, now());
    // As if the notification had been lost: somebody writes without one.
    fleet.database.ask(
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
                fleet.database.ask(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()",
                );
                pause(Duration::from_millis(20));
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

#[test]
fn a_change_begins_and_ends_on_time_on_every_server() {
    let _alone = alone();
    let fleet = fleet();
    const LATE: u64 = 200_000;
    let (begins, ends) = (now() + 1_500_000, now() + 3_000_000);
    let moment = |micros| Moment(Timestamp::from_micros(micros)).to_string();
    let mut quota = limited(50);
    quota["effective_at"] = json!(moment(begins));
    quota["expires_at"] = json!(moment(ends));
    let told = put(&fleet.servers[0], "a", None, &quota);
    assert_eq!(told.status, 200, "{told:?}");
    let mut seen = [(0, 0); SERVERS];
    while now() < ends + LATE {
        for (server, (first, last)) in fleet.servers.iter().zip(&mut seen) {
            let before = now();
            if decided(server, "a").0 == 50 {
                // It was in force at some moment between the two.
                if *first == 0 {
                    *first = now();
                }
                *last = before;
            }
        }
        pause(Duration::from_millis(5));
    }
    for (first, last) in seen {
        println!("it began {} ms late", first.saturating_sub(begins) / 1_000);
        assert!(first >= begins && first < begins + LATE, "from {} on", first as i64 - begins as i64);
        assert!(last < ends && last + LATE > ends, "until {}", last as i64 - ends as i64);
    }
}

#[test]
fn slow_no_update_of_a_hundred_writers_is_lost() {
    let _alone = alone();
    const WRITERS: usize = 100;
    let fleet = fleet();
    set_limit(&fleet.servers[0], "shared", 1_000);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fleet, refused) = (&fleet, &refused);
            scope.spawn(move || {
                let server = &fleet.servers[writer % SERVERS];
                loop {
                    let there = get(&server.url("admin", "/admin/v1/quotas/shared"));
                    let limit = there.json()["quotas"]["overrides"][0]["requests_per_unit"].as_u64().unwrap();
                    let told = put(server, "shared", Some(&there.tag), &limited(limit + 1));
                    match told.status {
                        200 => return,
                        412 => refused.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{told:?}"),
                    };
                }
            });
        }
    });
    println!("{WRITERS} writers, {} refusals", refused.load(Ordering::Relaxed));
    fleet.until_all("shared", 1_000 + WRITERS as u64, now());
    let logged = fleet.database.ask("SELECT count(*) FROM audit WHERE name = 'shared'");
    assert_eq!(logged.trim(), (WRITERS + 1).to_string());
}
