//! How soon a change through one server is in force on all, and how soon all servers have a decision in their log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tollgate::Timestamp;
use tollgate::control::Rfc3339;
use tollgate_testing::{Postgres, eventually, machine, sleep};

use crate::control::decisions::{check_refused, decision_count};
use crate::control::fleet::{ControlFleet, SERVERS, print_percentiles};
use crate::control::support::{get, limit, now, put, quota, server_on, set_limit};

/// The time within which a change is in force on every server, in microseconds.
const MAX_PROPAGATION: u64 = 1_000_000;

#[test]
fn a_change_is_in_force_on_every_server_within_a_second() {
    machine::alone();
    let fleet = ControlFleet::start();
    let took = (0..100).map(|n| {
        let (caller, limit) = (format!("caller-{}", n % 10), 10_000 + n);
        set_limit(&fleet.servers[n as usize % SERVERS], &caller, limit);
        fleet.wait_for_limit(&caller, limit, now())
    });
    let took = took.collect();
    assert!(print_percentiles("in force on 3 servers after the response", took) < MAX_PROPAGATION);
}

#[test]
fn a_change_begins_and_ends_on_time_on_every_server() {
    machine::alone();
    let fleet = ControlFleet::start();
    const MAX_DELAY: u64 = 200_000;
    let (start, end) = (now() + 1_500_000, now() + 3_000_000);
    let moment = |micros| Rfc3339(Timestamp::from_micros(micros)).to_string();
    let mut quota = quota(50);
    quota["effective_at"] = json!(moment(start));
    quota["expires_at"] = json!(moment(end));
    let response = put(&fleet.servers[0], "a", None, &quota);
    assert_eq!(response.status, 200, "{response:?}");
    let mut seen = [false; SERVERS];
    while now() < end + MAX_DELAY {
        for (server, seen) in fleet.servers.iter().zip(&mut seen) {
            let before = now();
            let is_in_force = limit(server, "a").0 == 50;
            let after = now();
            // The server answered at some time between the two, however busy the machine is.
            let from_to = format!("{} to {}", before as i64 - start as i64, after as i64 - start as i64);
            match is_in_force {
                true => assert!(after >= start && before < end, "in force: {from_to}"),
                false => assert!(before < start + MAX_DELAY || after >= end, "not in force: {from_to}"),
            }
            *seen |= is_in_force;
        }
        sleep(Duration::from_millis(5));
    }
    assert_eq!(seen, [true; SERVERS]);
}

#[test]
fn every_server_has_the_decisions_of_all_within_two_seconds() {
    machine::alone();
    let postgres = Postgres::database();
    let (one, other) = (server_on(postgres.url(), &[]), server_on(postgres.url(), &[]));
    check_refused(&one, "k");
    let refused_at = now();
    assert_eq!(decision_count(&one, "k"), Some(1));
    eventually(|| (decision_count(&other, "k") == Some(1)).then_some(())).unwrap();
    let took = now() - refused_at;
    assert!(took < 2_000_000, "{took} µs");
    check_refused(&other, "k");
    eventually(|| (decision_count(&one, "k") == Some(2)).then_some(())).unwrap();
}

#[test]
fn slow_concurrent_updates_of_a_hundred_writers_are_not_lost() {
    // The database must respond to each of them in time.
    machine::alone();
    const WRITERS: usize = 100;
    let fleet = ControlFleet::start();
    set_limit(&fleet.servers[0], "shared", 1_000);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fleet, refused) = (&fleet, &refused);
            scope.spawn(move || {
                let server = &fleet.servers[writer % SERVERS];
                loop {
                    let current = get(&server.url("admin", "/admin/v1/quotas/shared"));
                    let limit = current.json()["quotas"]["overrides"][0]["requests_per_unit"].as_u64().unwrap();
                    let response = put(server, "shared", Some(current.etag()), &quota(limit + 1));
                    match response.status {
                        200 => return,
                        412 => refused.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{response:?}"),
                    };
                }
            });
        }
    });
    println!("{WRITERS} writers, {} refusals", refused.load(Ordering::Relaxed));
    fleet.wait_for_limit("shared", 1_000 + WRITERS as u64, now());
    let logged = fleet.database.query("SELECT count(*) FROM audit WHERE name = 'shared'");
    assert_eq!(logged.trim(), (WRITERS + 1).to_string());
}
