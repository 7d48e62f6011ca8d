//! One key that everybody uses, leased: decisions in this process, with the units in Redis.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tollgate::{Descriptor, GuardConfig, Limiter, Request, Store};
use tollgate_redis::{RedisConfig, RedisCounters};
use tollgate_testing::Redis;

use super::driven::{one_thread, ruleset};
use super::pinned::turn;
use crate::server::turns::{at_least, at_most, middle, rounds, seconds, take_turns};

const RULES: &str = "
domain: leased
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 2000000000/hour, algorithm: fixed_window}
";

const TARGET: f64 = 1_000_000.0;
const MOST_CALLS: f64 = 10.0;
const MOST_NANOS: f64 = 200.0;
/// Decisions between two looks at the clock.
const STEP: u64 = 1_000;

pub fn run(redis: &Redis) {
    println!("one hot key in process, leased, {} rounds of {} s", rounds(), seconds());
    let config = RedisConfig::new(redis.url().parse().expect("an address"));
    let guard = GuardConfig { deadline: Duration::from_secs(1), ..GuardConfig::default() };
    let leased = Limiter::new(ruleset(RULES), RedisCounters::new(config, guard).expect("a store"));
    let in_memory = Limiter::in_memory(ruleset(RULES));
    let worker = one_thread();
    let calls = RefCell::new(Vec::new());
    let turns = take_turns(&[
        ("tollgate, leased", &|seconds| {
            let called = redis.commandstats("evalsha");
            let turn = turn(&[redis], || worker.block_on(decide(&leased, seconds)));
            calls.borrow_mut().push((redis.commandstats("evalsha") - called) as f64 / seconds);
            turn
        }),
        ("tollgate, in memory", &|seconds| turn(&[redis], || worker.block_on(decide(&in_memory, seconds)))),
    ]);
    let nanos = |turn: usize| 1e9 / turns[turn].rate().0;
    let difference = nanos(0) - nanos(1);
    at_least("decisions a second on one key", turns[0].rate(), TARGET);
    at_most("ns of a leased decision above one in memory", (difference, difference, difference), MOST_NANOS);
    // The first turn does not count.
    at_most("script calls a second", middle(calls.borrow()[1..].to_vec()), MOST_CALLS);
}

/// Decides for so long. Returns the number of decisions.
async fn decide<S: Store>(limiter: &Limiter<S>, seconds: f64) -> u64 {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let descriptors = [Descriptor::new(&[("api_key", "everybody's-name")])];
    let mut decisions = 0;
    while Instant::now() < until {
        for _ in 0..STEP {
            let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
            let decision = limiter.check_request(&request).await.expect("a request that can be decided");
            assert!(decision.allowed(), "nobody reaches the limit");
        }
        decisions += STEP;
        // Lets the process do something else, as a server does.
        tokio::task::yield_now().await;
    }
    decisions
}
