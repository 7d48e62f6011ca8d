//! Units are debited in all regions.

use serde_json::Value;
use tollgate_testing::until;

use super::{REGIONS, World};
use crate::http::{get, post};

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: calls, key: [user], match: {kind: calls}, limit: 60/year, algorithm: fixed_window, region: {global: {debit_threshold: 0%}}}
  - {name: share, key: [user], match: {kind: share}, limit: 60/year, algorithm: fixed_window, region: {global: {debit_threshold: 0%, apart: share}}}
";

/// A busy machine is not a fault.
const ARGS: [&str; 4] = ["--store-deadline", "1s", "--store-cool-down", "1s"];

impl World {
    /// What a server answers, as JSON.
    fn answer(&self, server: usize, user: &str, kind: &str) -> Value {
        let body = format!(r#"{{"domain":"fleet","attributes":{{"user":"{user}","kind":"{kind}"}}}}"#);
        post(&self.servers[server].url("http", "/v1/ratelimit/check"), &body).json()
    }

    fn admits(&self, server: usize, user: &str, kind: &str) -> bool {
        self.answer(server, user, kind)["allowed"] == true
    }

    fn metric(&self, server: usize, sample: &str) -> Option<f64> {
        let page = get(&self.servers[server].url("admin", "/metrics")).body;
        let line = page.lines().find_map(|line| line.strip_prefix(sample)).map(str::trim);
        line.and_then(|value| value.parse().ok())
    }
}

#[test]
fn what_one_region_admits_counts_in_all() {
    let world = World::start(RULES, 1, &ARGS);
    for (server, region) in REGIONS.iter().enumerate() {
        let admitted = (0..20).filter(|_| world.admits(server, "ada", "calls")).count();
        assert_eq!(admitted, 20, "{region}");
    }
    // Less than the limit was admitted in each.
    for server in 0..world.servers.len() {
        until("no region admits more", || !world.admits(server, "ada", "calls"));
        let refused = world.answer(server, "ada", "calls");
        assert!(refused["regions"].is_null(), "{refused}");
    }
    let sent = world.metric(0, r#"tollgate_region_units_total{region="us-east",how="sent"}"#);
    assert!(sent.is_some_and(|sent| sent >= 20.0), "{sent:?}");
    let lags = world.metric(0, r#"tollgate_region_lag_seconds_count{region="us-west"}"#);
    assert!(lags.is_some_and(|lags| lags >= 1.0), "{lags:?}");
    assert_eq!(world.metric(0, r#"tollgate_region_calls_seconds_count{region="us-west"}"#), Some(0.0));
}

#[test]
fn regions_that_are_apart_say_so_and_go_on() {
    let mut world = World::start(RULES, 1, &ARGS);
    let (cut, east, west) = (0, 1, 2);
    until("all are together", || {
        world.admits(east, "ada", "calls")
            && world.metric(east, r#"tollgate_region_lag_seconds_count{region="eu-west"}"#) > Some(0.0)
    });
    world.relays[cut].stall();
    // Debits are late, and then it is certain that they do not arrive.
    until("they are apart", || world.answer(east, "eve", "calls")["regions"] == "apart");
    let health = || get(&world.servers[east].url("admin", "/readyz")).body;
    until("it is reported", || health().contains("eu-west is apart"));
    assert_eq!(world.metric(east, r#"tollgate_region_apart{region="eu-west"}"#), Some(1.0));
    assert_eq!(world.metric(east, r#"tollgate_region_apart{region="us-west"}"#), Some(0.0));
    // The others go on together: alone, or with a third.
    let admitted = (0..60).filter(|_| world.admits(east, "bob", "calls")).count();
    assert_eq!(admitted, 60);
    let admitted = (0..60).filter(|_| world.admits(east, "bob", "share")).count();
    assert_eq!(admitted, 20);
    until("the other region hears of it", || !world.admits(west, "bob", "calls"));
    assert!((0..60).filter(|_| world.admits(cut, "bob", "calls")).count() > 0, "the region itself hears nothing");

    world.relays[cut].pass();
    until("they are together", || world.answer(east, "carl", "calls")["regions"].is_null());
    until("all that was admitted counts everywhere", || !world.admits(cut, "bob", "calls"));
    until("nothing is reported", || {
        world.metric(east, r#"tollgate_region_apart{region="eu-west"}"#) == Some(0.0) && !health().contains("regions")
    });
}
