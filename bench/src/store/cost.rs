//! What Redis itself spends on a decision, next to a plain script.

use std::sync::Arc;

use tollgate_testing::Redis;

use super::driven::{Callers, Driven, IN_FLIGHT};
use super::pinned::turn;
use super::plain::Plain;
use crate::load::KEYS;
use crate::server::turns::{Turns, at_most, rounds, seconds, take_turns};

const ONE: &str = "
domain: one
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1000000/hour, algorithm: token_bucket}
";

/// Of a customer, and of what the customer has.
const FOUR: &str = "
domain: four
entity: customer
rules:
  - {name: customer, key: [customer], limit: 1000000/hour, algorithm: token_bucket}
  - {name: user, key: [customer, user_id], limit: 1000000/hour, algorithm: token_bucket}
  - {name: api-key, key: [customer, api_key], limit: 1000000/hour, algorithm: token_bucket}
  - {name: endpoint, key: [customer, endpoint], limit: 1000000/hour, algorithm: token_bucket}
";

/// Of a customer alone.
const FOUR_PERIODS: &str = "
domain: periods
entity: customer
rules:
  - {name: second, key: [customer], limit: 100000/second, algorithm: token_bucket}
  - {name: minute, key: [customer], limit: 1000000/minute, algorithm: token_bucket}
  - {name: hour, key: [customer], limit: 1000000/hour, algorithm: token_bucket}
  - {name: day, key: [customer], limit: 10000000/day, algorithm: token_bucket}
";

/// How many decisions the larger of the plain scripts makes in a call.
const AT_ONCE: usize = 32;

pub fn run(redis: &Redis) {
    println!(
        "Redis's own time for a decision, {KEYS} callers, {IN_FLIGHT} claims in flight, {} rounds of {} s",
        rounds(),
        seconds()
    );
    let (store, callers) = (Driven::new(&redis.url()), Arc::new(Callers::new(KEYS)));
    let [one, four, periods] = [ONE, FOUR, FOUR_PERIODS].map(|rules| store.limiter(rules));
    let (plain, batches) = (Plain::one(&redis.url()), Plain::many(&redis.url(), AT_ONCE));
    let drive = |limiter, seconds| {
        turn(&[redis], || {
            let tally = store.drive(limiter, &callers, seconds);
            assert_eq!(tally.admitted, tally.decisions, "a limit that nobody reaches refused");
            tally.decisions
        })
    };
    let names = ["tollgate, one limit", "tollgate, four limits", "tollgate, four limits of other periods"];
    let plainly = ["plain script, a call each", "plain script, a call for 32"];
    let turns = take_turns(&[
        (names[0], &|seconds| drive(&one, seconds)),
        (names[1], &|seconds| drive(&four, seconds)),
        (names[2], &|seconds| drive(&periods, seconds)),
        (plainly[0], &|seconds| turn(&[redis], || plain.drive(&callers, seconds))),
        (plainly[1], &|seconds| turn(&[redis], || batches.drive(&callers, seconds))),
    ]);
    for (name, turns) in names.iter().chain(&plainly).zip(&turns) {
        print_cost(name, turns);
    }
    at_most("one limit to the plain script, Redis's time", turns[0].cost_to(&turns[3]), 0.7);
    at_most("four limits to one, Redis's time", turns[1].cost_to(&turns[0]), 1.6);
    at_most("four limits of other periods to one, Redis's time", turns[2].cost_to(&turns[0]), 1.6);
}

pub fn print_cost(name: &str, turns: &Turns) {
    let (median, least, most) = turns.cost();
    println!("  {name:<47} {median:>9.2} µs of Redis's time a decision   ({least:.2} to {most:.2})");
}
