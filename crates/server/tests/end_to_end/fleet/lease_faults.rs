//! Leases while Redis hangs, is killed or loses its data, and operators' changes of leased counters.

use std::time::Duration;

use tollgate_testing::{Redis, Server, until};

use super::leases::{LIMIT, RULES, WINDOW, by_window, check};
use super::load::{CheckResult, Load, Plan, Sample, check_concurrently};
use super::servers::Fleet;
use crate::control::support::send;
use crate::new_server;

/// Four servers under a load of four times the limit, while something happens to Redis. Returns what passed in each whole
/// window.
fn with_fault(fault: impl FnOnce(&mut Redis)) -> Vec<(usize, usize)> {
    let mut redis = Redis::start();
    let store = ["--store", &redis.url(), "--store-deadline", "50ms"];
    let servers = (0..4).map(|_| new_server().rules(RULES).listen(&["http"]).args(&store).start()).collect();
    let fleet = Fleet::from_servers(servers, &check("warm-up", "log"));
    let rate = 800;
    let window = Duration::from_micros(WINDOW);
    let load = Load::start(Plan { servers: fleet.addresses(), checks: vec![check("busy", "fixed")], rate });
    load.wait_for_more(rate * window.as_secs());
    fault(&mut redis);
    // A breaker that opened is closed 5 s later, and a whole window follows.
    load.wait_for_more(rate * 4 * window.as_secs());
    let samples: Vec<Sample> = load.stop();
    let errors = samples.iter().filter(|sample| matches!(sample.result, CheckResult::Error(_))).count();
    assert_eq!(errors, 0, "no caller sees an error");
    let counted = by_window(&samples);
    assert!(counted.len() >= 4, "{counted:?}");
    counted
}

/// Nothing beyond the stated bound, and exactly the limit when it is over.
fn assert_bounded(counted: &[(usize, usize)]) {
    for (certainly, _) in counted {
        assert!(*certainly <= 2 * LIMIT, "{counted:?}");
    }
    let (certainly, possibly) = counted[counted.len() - 1];
    assert!(certainly <= LIMIT && possibly >= LIMIT * 95 / 100, "{counted:?}");
}

#[test]
#[ignore = "takes half a minute: make test-long"]
fn slow_leases_hold_their_bound_while_redis_hangs() {
    assert_bounded(&with_fault(|redis| {
        redis.pause();
        tollgate_testing::sleep(Duration::from_secs(2));
        redis.resume();
    }));
}

#[test]
#[ignore = "takes half a minute: make test-long"]
fn slow_leases_hold_their_bound_when_redis_is_killed() {
    assert_bounded(&with_fault(|redis| {
        redis.kill();
        tollgate_testing::sleep(Duration::from_secs(1));
        redis.restart();
    }));
}

#[test]
#[ignore = "takes half a minute: make test-long"]
fn slow_leases_hold_their_bound_when_redis_loses_its_data() {
    assert_bounded(&with_fault(|redis| drop(redis.inline("FLUSHALL"))));
}

/// The units of one kind that a server has counted.
fn units(server: &Server, kind: &str) -> u64 {
    let metrics = crate::http::get(&server.url("admin", "/metrics")).body;
    let name = format!("tollgate_lease_units_total{{kind=\"{kind}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value.unwrap_or_else(|| panic!("{name}is missing")).parse().unwrap()
}

/// A counter that an operator resets on one server is as new on the others: they drop what they hold of it.
#[test]
fn a_reset_on_one_server_takes_effect_on_the_others() {
    let redis = Redis::start();
    let store = ["--store", &redis.url(), "--store-deadline", "1s"];
    let start = || new_server().rules(RULES).listen(&["http", "admin"]).args(&store).start();
    let (changed, other) = (start(), start());
    let addresses = [changed.address("http").to_owned(), other.address("http").to_owned()];
    let busy = check("busy", "slow");
    let is_leased = || {
        check_concurrently(&addresses, &busy, 400);
        units(&other, "taken") > 0
    };
    until("the key is leased", is_leased);
    let load = Load::start(Plan { servers: vec![addresses[1].clone()], checks: vec![busy.clone()], rate: 100 });
    load.wait_for_more(200);
    let before = units(&other, "expired");
    let url = changed.url("admin", "/admin/v1/counters/busy?domain=fleet");
    let body = r#"{"action": "reset", "rule": "slow", "reason": "a test"}"#;
    let reset = send("POST", &url, "application/json", body.to_owned());
    assert_eq!(reset.status, 200, "{}", reset.body);
    until("the other server drops what it holds", || units(&other, "expired") > before);
    let errors = load.stop().iter().filter(|sample| matches!(sample.result, CheckResult::Error(_))).count();
    assert_eq!(errors, 0);
}
