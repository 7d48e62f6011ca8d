//! A thousand calls whose cost is known when they have ended: the counter is the sum of the real costs.

use tokio::task::JoinSet;
use tollgate_testing::{Redis, Server, eventually};

use crate::http::get;
use crate::settle::StoreKind;
use crate::settle::client::{CHECK, CheckClient, SETTLE, runtime, settle_body};

const RULES: &str = "
domain: llm
entity: api_key
rules:
  - {name: tokens, key: [api_key], limit: 1000000/day in UTC, cost: tokens, settle: true, hold: 5m}
  - {name: warm, key: [warm], limit: 1000000/day}
";

const CALLS: u64 = 1_000;
const RESERVED: u64 = 1_000;
/// How many tasks run concurrently; each has several calls in flight.
const TASKS: u64 = 100;

/// The cost of a call: 100 to 3,000, the same in every run.
fn cost(call: u64) -> u64 {
    100 + call.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % 2_901
}

/// Makes calls, several in flight, settles them in another order, some twice. Returns how many passed, and their cost.
async fn make_calls(addresses: Vec<String>, task: u64) -> (u64, u64) {
    let mut callers: Vec<CheckClient> = addresses.iter().map(|address| CheckClient::new(address)).collect();
    let servers = callers.len();
    let mut in_flight: Vec<(u64, String)> = Vec::new();
    let (mut passed, mut spent) = (0, 0);
    for call in (0..CALLS / TASKS).map(|number| task * (CALLS / TASKS) + number) {
        let body = format!(r#"{{"attributes":{{"api_key":"k","tokens":"{RESERVED}"}}}}"#);
        let response = callers[call as usize % servers].send(CHECK, None, body).await;
        match response.status {
            200 => in_flight.push((call, response.receipt().to_owned())),
            status => assert_eq!(status, 429, "{response:?}"),
        }
        // The last calls end when all have started.
        if call.is_multiple_of(3) && !in_flight.is_empty() {
            let (call, receipt) = in_flight.remove(0);
            settle(&mut callers, call, &receipt).await;
            (passed, spent) = (passed + 1, spent + cost(call));
        }
    }
    while let Some((call, receipt)) = in_flight.pop() {
        settle(&mut callers, call, &receipt).await;
        (passed, spent) = (passed + 1, spent + cost(call));
    }
    (passed, spent)
}

/// Settles a receipt on any server. Some settlements are repeated.
async fn settle(callers: &mut [CheckClient], call: u64, receipt: &str) {
    let servers = callers.len();
    let body = settle_body(receipt, "ok", Some(cost(call)));
    let first = callers[(call as usize + 1) % servers].send(SETTLE, None, body.clone()).await;
    assert_eq!((first.status, first.is_replay), (200, false), "{first:?}");
    if call.is_multiple_of(5) {
        let again = callers[call as usize % servers].send(SETTLE, None, body).await;
        assert_eq!((again.status, again.is_replay, &again.body), (200, true, &first.body));
    }
}

/// The units of the day's counter, also past the limit: with a larger limit it is the same counter.
fn counted_units(server: &Server) -> u64 {
    const LARGER: u64 = 10_000_000;
    server.write_rules(&RULES.replace("1000000/day in UTC", &format!("{LARGER}/day in UTC")));
    let left = || {
        let response = get(&server.url("http", "/v1/ratelimit/status/k")).json();
        let tokens = response["limits"].as_array()?.iter().find(|one| one["name"] == "tokens")?.clone();
        (tokens["limit"] == LARGER).then(|| tokens["remaining"].as_u64()).flatten()
    };
    LARGER - eventually(left).expect("other rules are read")
}

fn check_costs(mut store: StoreKind, servers: usize) {
    let servers = store.start_servers(RULES, servers);
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let (passed, spent) = runtime().block_on(async {
        let mut tasks: JoinSet<(u64, u64)> = (0..TASKS).map(|task| make_calls(addresses.clone(), task)).collect();
        let mut all = (0, 0);
        while let Some(one) = tasks.join_next().await {
            let (passed, spent) = one.unwrap();
            all = (all.0 + passed, all.1 + spent);
        }
        all
    });
    println!("{passed} of {CALLS} calls passed and cost {spent}");
    assert!(passed > CALLS / 4 && passed < CALLS, "some pass and some are refused: {passed}");
    assert_eq!(counted_units(&servers[0]), spent);
}

#[test]
fn slow_a_thousand_calls_settle_to_their_real_cost_in_memory() {
    check_costs(StoreKind::Memory, 1);
}

#[test]
fn slow_a_thousand_calls_settle_to_their_real_cost_on_redis() {
    check_costs(StoreKind::Redis(Redis::start()), 2);
}
