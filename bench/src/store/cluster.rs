//! What a rule that all callers share costs in a cluster, where it lives in another slot than theirs.

use std::cell::RefCell;
use std::sync::Arc;

use tollgate_testing::{Cluster, Redis, cluster::PRIMARIES};

use super::cost::print_cost;
use super::driven::{Callers, Driven, IN_FLIGHT};
use super::pinned::{pin, turn};
use crate::load::KEYS;
use crate::server::turns::{middle, rounds, seconds, take_turns};

const ALONE: &str = "
domain: alone
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1000000/hour, algorithm: token_bucket}
";

const SHARED: &str = "
domain: shared
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1000000/hour, algorithm: token_bucket}
  - {name: everyone, key: [], limit: 100000000/hour, algorithm: token_bucket}
";

pub fn run() {
    println!(
        "Redis Cluster, {PRIMARIES} primaries with a replica each on one core, {KEYS} callers, {IN_FLIGHT} claims in flight, \
         {} rounds of {} s",
        rounds(),
        seconds()
    );
    let mut cluster = Cluster::start();
    cluster.nodes().iter_mut().for_each(|node| pin(&mut node.redis));
    let (store, callers) = (Driven::new(&cluster.url()), Arc::new(Callers::new(KEYS)));
    let nodes: Vec<&Redis> = cluster.nodes().iter().map(|node| &node.redis).collect();
    let calls = || nodes.iter().map(|redis| redis.commandstats("evalsha")).sum::<u64>();
    let drive = |limiter, seconds, calls_each: &RefCell<Vec<f64>>| {
        let before = calls();
        let mut decisions = 0;
        let turn = turn(&nodes, || {
            decisions = store.drive(limiter, &callers, seconds).decisions;
            decisions
        });
        calls_each.borrow_mut().push((calls() - before) as f64 / decisions as f64);
        turn
    };
    let [alone, shared] = [ALONE, SHARED].map(|rules| store.limiter(rules));
    let calls_each: [RefCell<Vec<f64>>; 2] = Default::default();
    let names = ["a caller's limit", "and one that all callers share"];
    let turns = take_turns(&[
        (names[0], &|seconds| drive(&alone, seconds, &calls_each[0])),
        (names[1], &|seconds| drive(&shared, seconds, &calls_each[1])),
    ]);
    for ((name, turns), calls) in names.iter().zip(&turns).zip(&calls_each) {
        print_cost(name, turns);
        // The first turn does not count.
        let (median, least, most) = middle(calls.borrow()[1..].to_vec());
        println!("  {name:<44} {median:>9.3} script calls a decision   ({least:.3} to {most:.3})");
    }
    let (ratio, least, most) = turns[1].to(&turns[0]);
    println!("  = decisions a second with it to those without: {ratio:.2} ({least:.2} to {most:.2})");
}
