//! What it costs a decision to be seen: counted by rule, tier and outcome, and timed now and then.

use std::sync::Arc;

use tollgate::{Limiter, MemoryStore};
use tollgate_observe::{Observer, ObserverConfig};

use crate::contenders::{FOUR, ONE, check, tollgate};
use crate::rounds::{more, take_turns};
use crate::workload::Workload;

/// Few keys, so that what is measured is not how far away their counters are.
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
const DRAWS: usize = 2_000_000;
/// The most nanoseconds that a decision may take longer.
const AT_MOST: f64 = 30.0;

pub fn run() {
    println!("what counting adds to a decision, {DRAWS} draws a round by Zipf 1.0");
    let work = Workload::zipf(FEW, DRAWS);
    let metrics = ObserverConfig { keys: false, ..ObserverConfig::default() };
    for (what, rules, threads) in [("one limit", ONE, 1), ("one limit, 2 threads", ONE, 2), ("four limits", FOUR, 1)] {
        let [without, counted, seen] = turns(&work, what, rules, threads, metrics);
        more(&format!("metrics, {what}"), counted - without, AT_MOST);
        println!("  = the heaviest keys, {what}: {:+.0} ns on top of that", seen - counted);
    }
    let work = Workload::zipf(MANY, DRAWS);
    for (what, threads) in [("a million keys", 1), ("a million keys, 2 threads", 2)] {
        let [_, counted, seen] = turns(&work, what, ONE, threads, metrics);
        println!("  = the heaviest keys, one limit, {what}: {:+.0} ns", seen - counted);
    }
}

/// A decision without an observer, with one that counts for metrics, and with one that counts keys too.
fn turns(work: &Workload, what: &str, rules: &str, threads: usize, metrics: ObserverConfig) -> [f64; 3] {
    let ask = |limiter: &'static Limiter<MemoryStore>| move |key: &String| check(limiter, &[("api_key", key)]);
    let without = leaked(tollgate(rules));
    let (counted, all) =
        (leaked(seen(tollgate(rules), metrics)), leaked(seen(tollgate(rules), ObserverConfig::default())));
    let times = take_turns(&mut [
        (what, &mut || work.on_threads(threads, DRAWS, || ask(without))),
        ("  with metrics", &mut || work.on_threads(threads, DRAWS, || ask(counted))),
        ("  with the heaviest keys too", &mut || work.on_threads(threads, DRAWS, || ask(all))),
    ]);
    let median: Vec<f64> = times.iter().map(|times| times.median()).collect();
    [median[0], median[1], median[2]]
}

/// With an observer, as the server has one.
fn seen(limiter: Limiter<MemoryStore>, config: ObserverConfig) -> Limiter<MemoryStore> {
    limiter.with_witness(Arc::new(Observer::new(config, Arc::default())))
}

fn leaked(limiter: Limiter<MemoryStore>) -> &'static Limiter<MemoryStore> {
    Box::leak(Box::new(limiter))
}
