//! What a request costs Redis: one call of a script, however many limits of one caller it meets.

use tollgate_testing::{Cluster, Redis, Server, eventually};

use crate::new_server;

/// Sequential requests that are counted: each must be answered before the next, else several share a call.
const REQUESTS: u64 = 50;

const OF_ONE_CALLER: &str = "
domain: fleet
entity: customer
rules:
  - {name: customer, key: [customer], limit: 1000/minute}
  - {name: user, key: [customer, user], limit: 1000/minute, algorithm: token_bucket}
  - {name: key, key: [customer, api_key], limit: 1000/hour, algorithm: fixed_window}
  - {name: endpoint, key: [customer, endpoint], limit: 1000/day}
";

const OF_EVERYBODY: &str = "  - {name: everybody, key: [], limit: 10000/second}\n";

const CHECK: &str = "/v1/ratelimit/check";

const BODY: &str =
    r#"{"domain":"fleet","attributes":{"customer":"c","user":"u","api_key":"k","endpoint":"GET /orders"}}"#;

/// A server that has found its store and taught it the script.
fn warm(rules: &str, store: &str) -> Server {
    let server =
        new_server().rules(rules).listen(&["http"]).args(&["--store", store, "--store-deadline", "1s"]).start();
    let found = || crate::http::post(&server.url("http", CHECK), BODY).json()["source"] == "store";
    assert!(eventually(|| found().then_some(())).is_some());
    server
}

/// Asks so often, and looks each time that all rules had a say and the store gave it.
#[track_caller]
fn ask(server: &Server, times: u64) {
    for _ in 0..times {
        let answer = crate::http::post(&server.url("http", CHECK), BODY);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["source"], "store");
    }
}

#[test]
fn four_limits_of_one_caller_are_one_call() {
    let redis = Redis::start();
    let server = warm(OF_ONE_CALLER, &redis.url());
    let before = redis.commandstats("evalsha");
    ask(&server, REQUESTS);
    assert_eq!(redis.commandstats("evalsha") - before, REQUESTS);
}

#[test]
fn a_limit_of_everybody_is_in_the_same_call_on_one_server() {
    let redis = Redis::start();
    let server = warm(&format!("{OF_ONE_CALLER}{OF_EVERYBODY}"), &redis.url());
    let before = redis.commandstats("evalsha");
    ask(&server, REQUESTS);
    assert_eq!(redis.commandstats("evalsha") - before, REQUESTS);
}

#[test]
fn slow_a_limit_of_everybody_is_a_second_call_in_a_cluster() {
    let mut cluster = Cluster::start();
    let mut cost = |rules: &str| {
        let server = warm(rules, &cluster.url());
        let mut calls = || cluster.nodes().iter().map(|node| node.redis.commandstats("evalsha")).sum::<u64>();
        let before = calls();
        ask(&server, REQUESTS);
        (calls() - before, REQUESTS)
    };
    assert_eq!(cost(OF_ONE_CALLER), (REQUESTS, REQUESTS));
    let with_everybody = cost(&format!("{OF_ONE_CALLER}{OF_EVERYBODY}"));
    println!("a limit of all callers in a cluster: {} calls for {} requests", with_everybody.0, with_everybody.1);
    assert_eq!(with_everybody, (2 * REQUESTS, REQUESTS));
}
