//! Calls to Redis for each request: one script call, whatever the number of the caller's limits.

use tollgate_testing::{Cluster, Redis, Server, eventually};

use crate::new_server;

/// The number of sequential requests. Concurrent ones could share a call.
const REQUESTS: u64 = 50;

const CALLER_RULES: &str = "
domain: fleet
entity: customer
rules:
  - {name: customer, key: [customer], limit: 1000/minute}
  - {name: user, key: [customer, user], limit: 1000/minute, algorithm: token_bucket}
  - {name: key, key: [customer, api_key], limit: 1000/hour, algorithm: fixed_window}
  - {name: endpoint, key: [customer, endpoint], limit: 1000/day}
";

const GLOBAL_RULE: &str = "  - {name: everybody, key: [], limit: 10000/second}\n";

const CHECK: &str = "/v1/ratelimit/check";

const BODY: &str =
    r#"{"domain":"fleet","attributes":{"customer":"c","user":"u","api_key":"k","endpoint":"GET /orders"}}"#;

/// A server that is connected to its store and has loaded the script.
fn start_warm(rules: &str, store: &str) -> Server {
    let server = new_server()
        .rules(rules)
        .listen(&["http"])
        .args(&["--store", store, "--store-deadline", "1s", "--leases", "off"])
        .start();
    let is_connected = || crate::http::post(&server.url("http", CHECK), BODY).json()["source"] == "store";
    assert!(eventually(|| is_connected().then_some(())).is_some());
    server
}

/// Sends this many checks, all of which the store must decide.
#[track_caller]
fn send_checks(server: &Server, times: u64) {
    for _ in 0..times {
        let response = crate::http::post(&server.url("http", CHECK), BODY);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.json()["source"], "store");
    }
}

#[test]
fn four_limits_of_one_caller_are_one_call() {
    let redis = Redis::start();
    let server = start_warm(CALLER_RULES, &redis.url());
    let before = redis.commandstats("evalsha");
    send_checks(&server, REQUESTS);
    assert_eq!(redis.commandstats("evalsha") - before, REQUESTS);
}

#[test]
fn a_global_limit_is_in_the_same_call_on_one_redis() {
    let redis = Redis::start();
    let server = start_warm(&format!("{CALLER_RULES}{GLOBAL_RULE}"), &redis.url());
    let before = redis.commandstats("evalsha");
    send_checks(&server, REQUESTS);
    assert_eq!(redis.commandstats("evalsha") - before, REQUESTS);
}

#[test]
fn slow_a_global_limit_is_a_second_call_in_a_cluster() {
    let mut cluster = Cluster::start();
    let mut cost = |rules: &str| {
        let server = start_warm(rules, &cluster.url());
        let mut calls = || cluster.nodes().iter().map(|node| node.redis.commandstats("evalsha")).sum::<u64>();
        let before = calls();
        send_checks(&server, REQUESTS);
        (calls() - before, REQUESTS)
    };
    assert_eq!(cost(CALLER_RULES), (REQUESTS, REQUESTS));
    let with_global = cost(&format!("{CALLER_RULES}{GLOBAL_RULE}"));
    println!("a global limit in a cluster: {} calls for {} requests", with_global.0, with_global.1);
    assert_eq!(with_global, (2 * REQUESTS, REQUESTS));
}
