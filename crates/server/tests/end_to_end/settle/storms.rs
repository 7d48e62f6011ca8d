//! Retry storms: a request that is repeated under one idempotency key is decided once, on any server.

use std::collections::HashMap;

use tokio::task::JoinSet;
use tollgate_testing::{Cluster, Redis};

use crate::settle::StoreKind;
use crate::settle::client::{CHECK, CheckClient, CheckResponse, runtime};

/// A limit of the caller, and a global one, which is on another shard in a cluster.
const RULES: &str = "
domain: d
entity: user
rules:
  - {name: user, key: [user], limit: 60/day in UTC}
  - {name: everybody, key: [], match: {user: present}, limit: 100000/day in UTC}
  - {name: warm, key: [warm], limit: 1000000/day}
";

const LIMIT: u64 = 60;
const CHECKS: u64 = 100;
const REPEATS: u64 = 5;

/// Sends every check five times, concurrently, to two servers.
fn check_retry_storm(mut store: StoreKind) {
    let servers = store.start_servers(RULES, 2);
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let responses: Vec<(u64, CheckResponse)> = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..CHECKS * REPEATS {
            let (check, address) = (number / REPEATS, addresses[number as usize % 2].clone());
            tasks.spawn(async move {
                let body = format!(r#"{{"attributes":{{"user":"u","order":"{check}"}}}}"#);
                (check, CheckClient::new(&address).send(CHECK, Some(&format!("order-{check}")), body).await)
            });
        }
        tasks.join_all().await
    });
    let mut by_check: HashMap<u64, Vec<CheckResponse>> = HashMap::new();
    responses.into_iter().for_each(|(check, response)| by_check.entry(check).or_default().push(response));
    let mut passed = 0;
    for (check, all) in &by_check {
        assert_eq!(all.len() as u64, REPEATS);
        let all: Vec<_> = all.iter().filter(|response| !is_unsettled(response)).collect();
        let numbers = |response: &CheckResponse| {
            (response.status, response.body["remaining"].clone(), response.body["allowed"].clone())
        };
        assert!(all.iter().all(|response| numbers(response) == numbers(all[0])), "{check}: {all:?}");
        let decided = all.iter().filter(|response| !response.is_replay).count() as u64;
        let has_passed = all[0].status == 200;
        // A refusal takes nothing, so its repetitions are decided like new checks.
        assert_eq!(decided, if has_passed { 1 } else { all.len() as u64 }, "{check}: {all:?}");
        passed += u64::from(has_passed);
    }
    assert_eq!(passed, LIMIT);
    // The global limit shows how much was consumed in all.
    let left = runtime().block_on(CheckClient::new(&addresses[0]).send(CHECK, None, peek_body("other")));
    assert_eq!(left.body["remaining"], LIMIT, "another caller consumed nothing: {left:?}");
    let explained =
        runtime().block_on(CheckClient::new(&addresses[1]).send("/v1/ratelimit/explain", None, peek_body("u")));
    let everybody =
        explained.body["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "everybody").unwrap();
    assert_eq!(everybody["counters"][0]["remaining"], 100_000 - LIMIT, "{explained:?}");
}

/// Whether a repetition was refused for a moment, because a busy machine had not decided the first one within the deadline. The wait of
/// a refusal by the limit is the rest of the day.
fn is_unsettled(response: &CheckResponse) -> bool {
    response.status == 429 && response.body["retry_after"].as_u64().unwrap() <= 2
}

fn peek_body(user: &str) -> String {
    format!(r#"{{"attributes":{{"user":"{user}"}},"cost":0}}"#)
}

#[test]
fn slow_a_retry_storm_on_two_servers_consumes_once() {
    check_retry_storm(StoreKind::Redis(Redis::start()));
}

#[test]
fn slow_a_retry_storm_over_several_shards_of_a_cluster_consumes_once() {
    check_retry_storm(StoreKind::Cluster(Cluster::start()));
}
