//! What it costs a decision to be seen: counted by rule, tier and outcome, and timed now and then.

use std::sync::Arc;

use tollgate::{Limiter, MemoryStore};
use tollgate_observe::{Observer, ObserverConfig};

use crate::contenders::{FOUR, ONE, check, tollgate};
use crate::rounds::{more, take_turns};
use crate::workload::Workload;

const KEYS: usize = 1_000_000;
const DRAWS: usize = 2_000_000;
/// The most nanoseconds that a decision may take longer.
const AT_MOST: f64 = 30.0;

pub fn run() {
    println!("one decision, seen and not, {KEYS} keys, Zipf 1.0, {DRAWS} draws a round");
    let work = Workload::zipf(KEYS, DRAWS);
    let ask = |limiter: &'static Limiter<MemoryStore>| {
        let mut session = limiter.session();
        move |key: &String| check(&mut session, &[("api_key", key)])
    };
    let metrics = ObserverConfig { keys: false, ..ObserverConfig::default() };
    let (one, one_counted, one_seen) =
        (kept(tollgate(ONE)), kept(seen(tollgate(ONE), metrics)), kept(seen(tollgate(ONE), ObserverConfig::default())));
    let (four, four_counted, four_seen) = (
        kept(tollgate(FOUR)),
        kept(seen(tollgate(FOUR), metrics)),
        kept(seen(tollgate(FOUR), ObserverConfig::default())),
    );
    let times = take_turns(&mut [
        ("one limit", &mut || work.on_threads(1, DRAWS, || ask(one))),
        ("one limit, with metrics", &mut || work.on_threads(1, DRAWS, || ask(one_counted))),
        ("one limit, with the heaviest keys too", &mut || work.on_threads(1, DRAWS, || ask(one_seen))),
        ("four limits", &mut || work.on_threads(1, DRAWS, || ask(four))),
        ("four limits, with metrics", &mut || work.on_threads(1, DRAWS, || ask(four_counted))),
        ("four limits, with the heaviest keys too", &mut || work.on_threads(1, DRAWS, || ask(four_seen))),
        ("one limit, 2 threads", &mut || work.on_threads(2, DRAWS, || ask(one))),
        ("one limit, 2 threads, with metrics", &mut || work.on_threads(2, DRAWS, || ask(one_counted))),
        ("one limit, 2 threads, with the keys too", &mut || work.on_threads(2, DRAWS, || ask(one_seen))),
    ]);
    let median: Vec<f64> = times.iter().map(|times| times.median()).collect();
    for (what, at) in [("one limit", 0), ("four limits", 3), ("one limit, 2 threads", 6)] {
        more(&format!("metrics, {what}"), median[at + 1] - median[at], AT_MOST);
        println!("  = the heaviest keys, {what}: {:+.0} ns beside that", median[at + 2] - median[at + 1]);
    }
}

/// With an observer, as the server has one.
fn seen(limiter: Limiter<MemoryStore>, config: ObserverConfig) -> Limiter<MemoryStore> {
    limiter.with_witness(Arc::new(Observer::new(config)))
}

fn kept(limiter: Limiter<MemoryStore>) -> &'static Limiter<MemoryStore> {
    Box::leak(Box::new(limiter))
}
