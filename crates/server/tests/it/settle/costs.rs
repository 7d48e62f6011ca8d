//! A thousand calls whose cost is known when they have ended: the counter is the sum of what they really cost.

use tokio::task::JoinSet;
use tollgate_testing::{Redis, Server, eventually};

use crate::http::get;
use crate::settle::Shared;
use crate::settle::caller::{CHECK, Caller, SETTLE, runtime, settling};

const RULES: &str = "
domain: llm
entity: api_key
rules:
  - {name: tokens, key: [api_key], limit: 1000000/day in UTC, cost: tokens, settle: true, hold: 5m}
  - {name: warm, key: [warm], limit: 1000000/day}
";

const CALLS: u64 = 1_000;
const RESERVED: u64 = 1_000;
/// So many ask at the same time; each has several calls under way.
const TASKS: u64 = 100;

/// The same as often as the tests run: what each call costs, 100 to 3,000.
fn cost(call: u64) -> u64 {
    100 + call.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % 2_901
}

/// Calls, some under way at a time, settled in another order than they began, some twice; what those that passed cost.
async fn calls(addresses: Vec<String>, task: u64) -> (u64, u64) {
    let mut callers: Vec<Caller> = addresses.iter().map(|address| Caller::of(address)).collect();
    let servers = callers.len();
    let mut under_way: Vec<(u64, String)> = Vec::new();
    let (mut passed, mut spent) = (0, 0);
    for call in (0..CALLS / TASKS).map(|number| task * (CALLS / TASKS) + number) {
        let body = format!(r#"{{"attributes":{{"api_key":"k","tokens":"{RESERVED}"}}}}"#);
        let told = callers[call as usize % servers].ask(CHECK, None, body).await;
        match told.status {
            200 => under_way.push((call, told.receipt().to_owned())),
            status => assert_eq!(status, 429, "{told:?}"),
        }
        // The last of its calls end when all have begun.
        if call.is_multiple_of(3) && !under_way.is_empty() {
            let (call, receipt) = under_way.remove(0);
            settle(&mut callers, call, &receipt).await;
            (passed, spent) = (passed + 1, spent + cost(call));
        }
    }
    while let Some((call, receipt)) = under_way.pop() {
        settle(&mut callers, call, &receipt).await;
        (passed, spent) = (passed + 1, spent + cost(call));
    }
    (passed, spent)
}

/// Any server settles what any other gave a receipt for; who is not sure that it was heard says it again.
async fn settle(callers: &mut [Caller], call: u64, receipt: &str) {
    let servers = callers.len();
    let body = settling(receipt, "ok", Some(cost(call)));
    let first = callers[(call as usize + 1) % servers].ask(SETTLE, None, body.clone()).await;
    assert_eq!((first.status, first.is_replay), (200, false), "{first:?}");
    if call.is_multiple_of(5) {
        let again = callers[call as usize % servers].ask(SETTLE, None, body).await;
        assert_eq!((again.status, again.is_replay, &again.body), (200, true, &first.body));
    }
}

/// What the day's counter has, past its limit too: under a larger limit it is the same counter.
fn counted(server: &Server) -> u64 {
    const LARGER: u64 = 10_000_000;
    server.write_rules(&RULES.replace("1000000/day in UTC", &format!("{LARGER}/day in UTC")));
    let left = || {
        let told = get(&server.url("http", "/v1/ratelimit/status/k")).json();
        let tokens = told["limits"].as_array()?.iter().find(|one| one["name"] == "tokens")?.clone();
        (tokens["limit"] == LARGER).then(|| tokens["remaining"].as_u64()).flatten()
    };
    LARGER - eventually(left).expect("other rules are read")
}

fn try_on(mut shared: Shared, servers: usize) {
    let servers = shared.servers(RULES, servers);
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let (passed, spent) = runtime().block_on(async {
        let mut tasks: JoinSet<(u64, u64)> = (0..TASKS).map(|task| calls(addresses.clone(), task)).collect();
        let mut all = (0, 0);
        while let Some(one) = tasks.join_next().await {
            let (passed, spent) = one.unwrap();
            all = (all.0 + passed, all.1 + spent);
        }
        all
    });
    println!("{passed} of {CALLS} calls passed and cost {spent}");
    assert!(passed > CALLS / 4 && passed < CALLS, "some pass and some do not: {passed}");
    assert_eq!(counted(&servers[0]), spent);
}

#[test]
fn slow_a_thousand_calls_settle_to_what_they_cost_in_memory() {
    try_on(Shared::Nothing, 1);
}

#[test]
fn slow_a_thousand_calls_settle_to_what_they_cost_on_one_redis() {
    try_on(Shared::Redis(Redis::start()), 2);
}
