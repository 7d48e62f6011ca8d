//! Retry storms: however often and wherever a request is repeated under one key, it is decided once.

use std::collections::HashMap;

use tokio::task::JoinSet;
use tollgate_testing::{Cluster, Redis};

use crate::settle::Shared;
use crate::settle::caller::{CHECK, Caller, Told, runtime};

/// One limit of the caller's, and one of everybody's, which in a cluster lives elsewhere.
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
const TIMES: u64 = 5;

/// Every check is sent five times, at the same moment, to two servers.
fn storm(mut shared: Shared) {
    let servers = shared.servers(RULES, 2);
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let told: Vec<(u64, Told)> = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..CHECKS * TIMES {
            let (check, address) = (number / TIMES, addresses[number as usize % 2].clone());
            tasks.spawn(async move {
                let body = format!(r#"{{"attributes":{{"user":"u","order":"{check}"}}}}"#);
                (check, Caller::of(&address).ask(CHECK, Some(&format!("order-{check}")), body).await)
            });
        }
        tasks.join_all().await
    });
    let mut by_check: HashMap<u64, Vec<Told>> = HashMap::new();
    told.into_iter().for_each(|(check, told)| by_check.entry(check).or_default().push(told));
    let mut passed = 0;
    for (check, all) in &by_check {
        assert_eq!(all.len() as u64, TIMES);
        let numbers = |told: &Told| (told.status, told.body["remaining"].clone(), told.body["allowed"].clone());
        assert!(all.iter().all(|told| numbers(told) == numbers(&all[0])), "{check}: {all:?}");
        assert_eq!(all.iter().filter(|told| !told.is_replay).count(), 1, "{check}: {all:?}");
        passed += u64::from(all[0].status == 200);
    }
    assert_eq!(passed, LIMIT);
    // What is left of the limit of everybody says how much was consumed in all.
    let left = runtime().block_on(Caller::of(&addresses[0]).ask(CHECK, None, look("other")));
    assert_eq!(left.body["remaining"], LIMIT, "nobody else consumed anything: {left:?}");
    let explained = runtime().block_on(Caller::of(&addresses[1]).ask("/v1/ratelimit/explain", None, look("u")));
    let everybody =
        explained.body["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "everybody").unwrap();
    assert_eq!(everybody["counters"][0]["remaining"], 100_000 - LIMIT, "{explained:?}");
}

fn look(user: &str) -> String {
    format!(r#"{{"attributes":{{"user":"{user}"}},"cost":0}}"#)
}

#[test]
fn slow_a_retry_storm_on_two_servers_consumes_once() {
    storm(Shared::Redis(Redis::start()));
}

#[test]
fn slow_a_retry_storm_over_several_places_of_a_cluster_consumes_once() {
    storm(Shared::Cluster(Cluster::start()));
}
