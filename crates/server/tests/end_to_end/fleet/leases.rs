//! Leases on a real Redis: several servers take units of busy keys ahead of requests, and admit exactly the limit.

use std::time::Duration;

use tollgate_core::Source;
use tollgate_testing::{Cluster, Redis, Server, eventually};

use crate::fleet::load::{Check, CheckResult, Load, Plan, Sample, check_concurrently, check_once};
use crate::fleet::servers::Fleet;
use crate::new_server;

pub(super) const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: fixed, key: [user], match: {kind: fixed}, limit: 1000/5s, algorithm: fixed_window}
  - {name: hour, key: [user], match: {kind: hour}, limit: 20000/hour, algorithm: fixed_window}
  - {name: slow, key: [user], match: {kind: slow}, limit: 20000/day, algorithm: fixed_window, lease: on}
  - {name: log, key: [user], match: {kind: log}, limit: 1000/hour, algorithm: sliding_log}
  - {name: off, key: [user], match: {kind: off}, limit: 1000/hour, lease: off}
";

/// The window of the rule `fixed`, in microseconds.
pub(super) const WINDOW: u64 = 5_000_000;
pub(super) const LIMIT: usize = 1_000;

pub(super) fn check(user: &str, kind: &'static str) -> Check {
    Check { user: user.to_owned(), kind }
}

fn server(redis: &str, args: &[&str]) -> Server {
    let store = ["--store", redis, "--store-deadline", "1s"];
    new_server().rules(RULES).listen(&["http"]).args(&store).args(args).start()
}

fn fleet(redis: &str, count: usize) -> Fleet {
    Fleet::from_servers((0..count).map(|_| server(redis, &[])).collect(), &check("warm-up", "log"))
}

pub(super) fn admitted(results: &[CheckResult]) -> usize {
    results.iter().filter(|result| matches!(result, CheckResult::Decided { allowed: true, .. })).count()
}

fn leased(results: &[CheckResult]) -> usize {
    results.iter().filter(|result| matches!(result, CheckResult::Decided { source: Source::Lease, .. })).count()
}

/// What a caller has left according to Redis, as a server without leases reads it.
pub(super) fn remaining(redis: &str, check: &Check) -> u64 {
    let server = server(redis, &["--leases", "off"]);
    let Check { user, kind } = check;
    let body = format!(r#"{{"domain":"fleet","attributes":{{"user":"{user}","kind":"{kind}"}},"cost":0}}"#);
    let peek = || crate::http::post(&server.url("http", "/v1/ratelimit/check"), &body).json();
    let read = eventually(|| (peek()["source"] == "store").then(|| peek()["remaining"].as_u64())).flatten();
    read.expect("the server reads the counter")
}

/// The requests that passed in each whole window: those that certainly did, and those that may have.
pub(super) fn by_window(samples: &[Sample]) -> Vec<(usize, usize)> {
    let allowed = |sample: &&Sample| matches!(sample.result, CheckResult::Decided { allowed: true, .. });
    let times = || samples.iter().map(|sample| sample.started / WINDOW);
    let (first, last) = (times().min().unwrap() + 1, times().max().unwrap());
    let count = |window: u64| {
        let touches = |sample: &&Sample| sample.started / WINDOW <= window && sample.ended / WINDOW >= window;
        let within = |sample: &&Sample| sample.started / WINDOW == window && sample.ended / WINDOW == window;
        let passed = || samples.iter().filter(allowed);
        (passed().filter(within).count(), passed().filter(touches).count())
    };
    (first..last).map(count).collect()
}

fn exact_over_windows(windows: u64) {
    let redis = Redis::start();
    let fleet = fleet(&redis.url(), 4);
    let rate = 400;
    let before = redis.commandstats("evalsha");
    let load = Load::start(Plan { servers: fleet.addresses(), checks: vec![check("busy", "fixed")], rate });
    load.wait_for_more(rate * (WINDOW / 1_000_000) * (windows + 1));
    let samples = load.stop();
    let calls = redis.commandstats("evalsha") - before;
    let errors = samples.iter().filter(|sample| matches!(sample.result, CheckResult::Error(_))).count();
    assert_eq!(errors, 0);
    let counted = by_window(&samples);
    for (certainly, possibly) in &counted {
        assert!(*certainly <= LIMIT && *possibly >= LIMIT * 95 / 100, "{counted:?}");
    }
    assert!(counted.len() as u64 >= windows, "{counted:?}");
    assert!(calls * 3 < samples.len() as u64, "{calls} calls for {} requests", samples.len());
}

#[test]
fn slow_four_servers_admit_exactly_the_limit_of_every_window() {
    exact_over_windows(2);
}

#[test]
#[ignore = "takes two minutes: make test-long"]
fn slow_four_servers_admit_exactly_the_limit_of_twenty_windows() {
    exact_over_windows(20);
}

/// Nothing is lost when servers stop, and nothing comes back that was spent when one is killed.
#[test]
fn units_that_are_held_are_given_back_when_a_server_stops() {
    let redis = Redis::start();
    let (url, checks) = (redis.url(), check("busy", "slow"));
    let mut servers: Vec<Server> = (0..3).map(|_| server(&url, &[])).collect();
    for server in &servers {
        let is_connected = || check_once(server.address("http"), &check("warm-up", "log"));
        let by_store = CheckResult::Decided { allowed: true, source: Source::Store };
        assert!(eventually(|| (is_connected() == by_store).then_some(())).is_some());
    }
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let results = check_concurrently(&addresses, &checks, 4_800);
    assert_eq!(admitted(&results), 4_800);
    assert!(leased(&results) > 2_400, "{} of 4,800 leased", leased(&results));
    for server in &mut servers {
        assert!(server.stop().success());
    }
    assert_eq!(remaining(&url, &checks), 20_000 - 4_800, "nothing is lost");

    let mut killed = server(&url, &[]);
    let by_store = || check_once(killed.address("http"), &check("warm-up", "log"));
    assert!(
        eventually(|| matches!(by_store(), CheckResult::Decided { source: Source::Store, .. }).then_some(())).is_some()
    );
    let results = check_concurrently(&[killed.address("http").to_owned()], &checks, 1_600);
    assert_eq!(admitted(&results), 1_600);
    killed.kill();
    let left = remaining(&url, &checks);
    assert!(left <= 20_000 - 6_400 && left > 20_000 - 6_400 - 2_500, "{left}: only what was held is missing");
}

#[test]
fn only_rules_that_allow_it_are_leased() {
    let redis = Redis::start();
    let store = ["--store", &redis.url(), "--store-deadline", "1s"];
    let server_with_admin = new_server().rules(RULES).listen(&["http", "admin"]).args(&store).start();
    let admin = server_with_admin.url("admin", "/admin/v1/leases");
    let fleet = Fleet::from_servers(vec![server_with_admin], &check("warm-up", "log"));
    for (kind, is_leased) in [("hour", true), ("slow", true), ("log", false), ("off", false)] {
        let results = check_concurrently(&fleet.addresses(), &check("ada", kind), 400);
        assert_eq!(
            (admitted(&results), leased(&results) > 200),
            (400, is_leased),
            "{kind}: {} leased",
            leased(&results)
        );
    }
    // What is idle for a second is no longer leased.
    let hot = eventually(|| {
        check_concurrently(&fleet.addresses(), &check("ada", "hour"), 80);
        let hot = crate::http::get(&admin).json();
        let is_hour = |key: &&serde_json::Value| key["rule"] == "hour" && key["local_share"].as_f64() > Some(0.5);
        hot["keys"].as_array()?.iter().find(is_hour).cloned()
    });
    assert_eq!(hot.expect("the busy key is listed")["key"], "ada");
    let off = Fleet::from_servers(vec![server(&redis.url(), &["--leases", "off"])], &check("warm-up", "log"));
    let results = check_concurrently(&off.addresses(), &check("eve", "hour"), 400);
    assert_eq!((admitted(&results), leased(&results)), (400, 0));
}

/// Held units are spent while Redis hangs; then the policies of the rules decide. What was held is not spent again after
/// the window has ended meanwhile.
#[test]
fn slow_a_paused_server_spends_nothing_of_a_window_that_is_over() {
    let redis = Redis::start();
    let servers: Vec<Server> = (0..2).map(|_| server(&redis.url(), &[])).collect();
    let paused = servers[0].id();
    let fleet = Fleet::from_servers(servers, &check("warm-up", "log"));
    let load = Load::start(Plan { servers: fleet.addresses(), checks: vec![check("busy", "fixed")], rate: 400 });
    load.wait_for_more(800);
    signal(paused, "STOP");
    tollgate_testing::sleep(Duration::from_micros(WINDOW + WINDOW / 2));
    signal(paused, "CONT");
    load.wait_for_more(4_000);
    let counted = by_window(&load.stop());
    for (certainly, _) in &counted {
        assert!(*certainly <= LIMIT, "{counted:?}");
    }
    assert!(counted.len() >= 2, "{counted:?}");
}

fn signal(process: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

/// A counter that all callers share lives in another slot than theirs. Leased, it needs no second call.
#[test]
fn a_global_limit_in_a_cluster_needs_no_second_call() {
    let rules = "
domain: fleet
entity: user
rules:
  - {name: mine, key: [user], limit: 100000/hour, lease: off}
  - {name: everybody, key: [], limit: 100000/second}
";
    let mut cluster = Cluster::start();
    let args = ["--store", &cluster.url(), "--store-deadline", "1s"];
    let server = new_server().rules(rules).listen(&["http"]).args(&args).start();
    let fleet = Fleet::from_servers(vec![server], &check("warm-up", "any"));
    // The shared key is leased after a few requests.
    check_concurrently(&fleet.addresses(), &check("ada", "any"), 80);
    let mut calls = || cluster.nodes().iter().map(|node| node.redis.commandstats("evalsha")).sum::<u64>();
    let before = calls();
    let results = check_concurrently(&fleet.addresses(), &check("ada", "any"), 800);
    let calls = calls() - before;
    assert_eq!(admitted(&results), 800);
    assert!(calls < 800 + 200, "{calls} calls for 800 requests of two slots");
}
