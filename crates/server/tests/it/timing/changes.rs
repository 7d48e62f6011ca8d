//! How soon a change that was written through one server is in force on all, and how soon a decision is known to all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tollgate::Timestamp;
use tollgate::control::Rfc3339;
use tollgate_testing::{Postgres, eventually, machine, sleep};

use crate::control::decisions::{known, refuse};
use crate::control::fleet::{SERVERS, figures, fleet};
use crate::control::world::{decided, get, limited, now, put, server_on, set_limit};

/// How soon a change is in force everywhere, in microseconds.
const SOON: u64 = 1_000_000;

#[test]
fn a_change_is_in_force_on_every_server_within_a_second() {
    machine::alone();
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
fn a_change_begins_and_ends_on_time_on_every_server() {
    machine::alone();
    let fleet = fleet();
    const LATE: u64 = 200_000;
    let (begins, ends) = (now() + 1_500_000, now() + 3_000_000);
    let moment = |micros| Rfc3339(Timestamp::from_micros(micros)).to_string();
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
        sleep(Duration::from_millis(5));
    }
    for (first, last) in seen {
        println!("it began {} ms late", first.saturating_sub(begins) / 1_000);
        assert!(first >= begins && first < begins + LATE, "from {} on", first as i64 - begins as i64);
        assert!(last < ends && last + LATE > ends, "until {}", last as i64 - ends as i64);
    }
}

#[test]
fn every_server_answers_for_all_within_two_seconds() {
    machine::alone();
    let postgres = Postgres::database();
    let (one, other) = (server_on(postgres.url(), &[]), server_on(postgres.url(), &[]));
    refuse(&one, "k");
    let refused_at = now();
    assert_eq!(known(&one, "k"), Some(1));
    eventually(|| (known(&other, "k") == Some(1)).then_some(())).unwrap();
    let took = now() - refused_at;
    assert!(took < 2_000_000, "{took} µs");
    refuse(&other, "k");
    eventually(|| (known(&one, "k") == Some(2)).then_some(())).unwrap();
}

#[test]
fn slow_no_update_of_a_hundred_writers_is_lost() {
    // The database must answer each of them in time.
    machine::alone();
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
    let logged = fleet.database.query("SELECT count(*) FROM audit WHERE name = 'shared'");
    assert_eq!(logged.trim(), (WRITERS + 1).to_string());
}
