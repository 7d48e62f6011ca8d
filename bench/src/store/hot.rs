//! One key that everybody asks for.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tollgate_testing::Redis;

use super::driven::{Callers, Driven, IN_FLIGHT};
use super::pinned::turn;
use crate::server::turns::{at_least, at_most, middle, rounds, seconds, take_turns};

/// More than is ever claimed, in a period that does not end meanwhile: what is left tells what was counted.
const NEVER_REACHED: u64 = 200_000_000;
const REACHED: u64 = 100_000;
/// How many claims are made on the limit that is reached.
const CLAIMS: u64 = 150_000;

const TARGET: f64 = 100_000.0;
const MOST_CALLS: f64 = 20_000.0;

pub fn run(redis: &Redis) {
    println!("one hot key, {IN_FLIGHT} claims in flight, {} rounds of {} s", rounds(), seconds());
    let (store, callers) = (Driven::new(&redis.url()), Arc::new(Callers::one("everybody's-name")));
    let limiter = store.limiter(&rules("hot", NEVER_REACHED));
    let (calls, claimed) = (RefCell::new(Vec::new()), Cell::new(0));
    let turns = take_turns(&[("tollgate, fixed window", &|seconds| {
        let (called, mut decisions) = (redis.commandstats("evalsha"), 0);
        let turn = turn(&[redis], || {
            decisions = store.drive(&limiter, &callers, seconds).decisions;
            decisions
        });
        claimed.set(claimed.get() + decisions);
        let calls_each = (redis.commandstats("evalsha") - called) as f64 / decisions as f64;
        calls.borrow_mut().push(turn.rate * calls_each);
        turn
    })]);
    let (counted, claimed) = (NEVER_REACHED - store.left(&limiter, &callers), claimed.get());
    assert_eq!(counted, claimed, "each decision is counted once");
    println!("  {claimed} decisions, counted exactly");
    // The first turn does not count.
    at_least("decisions a second on one key", turns[0].rate(), TARGET);
    at_most("script calls a second", middle(calls.borrow()[1..].to_vec()), MOST_CALLS);

    let tally = store.drive_while(&store.forgetful(&rules("reached", REACHED)), &callers, |number| number < CLAIMS);
    let word = if tally.admitted == REACHED { "reached" } else { "MISSED" };
    println!("  = admitted of {CLAIMS}: {}, exactly {REACHED} required: {word}", tally.admitted);
}

fn rules(domain: &str, limit: u64) -> String {
    format!(
        "
domain: {domain}
entity: api_key
rules:
  - {{name: per-key, key: [api_key], limit: {limit}/year, algorithm: fixed_window}}
"
    )
}
