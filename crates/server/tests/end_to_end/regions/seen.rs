//! What operators see of other regions.

use tollgate_testing::until;

use super::{REGIONS, World};
use crate::cli::tollgate;
use crate::http::{get, post};
use crate::observability::dashboard::region_queries;
use crate::observability::prometheus::Prometheus;

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: calls, key: [user], match: {kind: calls}, limit: 900/year, algorithm: fixed_window, region: {global: {debit_threshold: 0%}}}
  - {name: owned, key: [user], match: {kind: owned}, limit: 900/year, algorithm: fixed_window, region: {home: us-west}}
";

/// A busy machine is not a fault.
const ARGS: [&str; 6] = ["--store-deadline", "1s", "--store-cool-down", "1s", "--region-deadline", "1s"];

#[test]
fn panels_and_pages_show_other_regions() {
    let world = World::start(RULES, 1, &ARGS);
    let prometheus = Prometheus::start(world.servers[0].address("admin"));
    let mut user = 0;
    let mut check = |kind: &'static str| {
        user += 1;
        world.check(0, &format!("user-{user}"), kind)
    };
    let mut empty = region_queries();
    assert_eq!(empty.len(), 4);
    until("all panels show something", || {
        check("calls");
        check("owned");
        empty.retain(|(_, expr)| prometheus.numbers(expr).is_empty());
        empty.is_empty()
    });
    let admin = world.servers[0].url("admin", "");
    let seen = get(&format!("{admin}/admin/v1/regions")).json();
    let regions = seen["regions"].as_array().unwrap();
    assert_eq!(regions.iter().map(|region| region["name"].as_str().unwrap()).collect::<Vec<_>>(), REGIONS);
    assert!(regions[0]["this"] == true && regions[0]["servers"] == 1, "{seen}");
    for other in &regions[1..] {
        assert!(other["units"]["sent"].as_u64() > Some(0) && other["lag"]["p99"].as_f64() >= Some(0.04), "{other}");
        assert_eq!(other["nodes"].as_array().map(Vec::len), Some(1), "{other}");
    }
    assert!(regions[2]["calls"]["p99"].as_f64() >= Some(0.04), "{seen}");

    let printed = tollgate(&["regions", "--server", &admin], b"").out;
    assert!(printed.contains("us-west  together") && printed.contains("home: us-west"), "{printed}");
    let usage = get(&format!("{admin}/admin/v1/usage/user-2")).json();
    let owned = usage["usage"].as_object().unwrap().values().find(|usage| usage["rule"] == "owned").unwrap();
    assert!(owned["region"] == "us-west" && owned["used"] == 1, "{usage}");
    let status = get(&world.servers[0].url("http", "/v1/ratelimit/status/user-2?kind=owned")).json();
    let owned = status["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "owned").unwrap();
    assert_eq!(owned["region"], "us-west", "{status}");
}

#[test]
fn what_is_used_is_known_while_a_limit_is_lowered() {
    let world = World::start(RULES, 1, &ARGS);
    let ask = |user: &str, cost: u64| {
        let attributes = format!(r#"{{"user":"{user}","kind":"calls"}}"#);
        let body = format!(r#"{{"domain":"fleet","attributes":{attributes},"cost":{cost}}}"#);
        post(&world.servers[1].url("http", "/v1/ratelimit/check"), &body)
    };
    ask("ada", 10);
    world.relays[0].stall();
    // Units that wait are late after half a second, and the regions are apart after two.
    until("they are apart", || {
        ask("bob", 1);
        let peeked = ask("ada", 0);
        assert_eq!(peeked.headers["x-ratelimit-used"], "10", "{}", peeked.body);
        peeked.json()["regions"] == "apart"
    });
}
