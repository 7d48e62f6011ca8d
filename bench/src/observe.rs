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
    let (one, one_seen) = (kept(tollgate(ONE)), kept(seen(tollgate(ONE))));
    let (four, four_seen) = (kept(tollgate(FOUR)), kept(seen(tollgate(FOUR))));
    let times = take_turns(&mut [
        ("one limit", &mut || work.on_threads(1, DRAWS, || ask(one))),
        ("one limit, seen", &mut || work.on_threads(1, DRAWS, || ask(one_seen))),
        ("four limits", &mut || work.on_threads(1, DRAWS, || ask(four))),
        ("four limits, seen", &mut || work.on_threads(1, DRAWS, || ask(four_seen))),
        ("one limit, 2 threads", &mut || work.on_threads(2, DRAWS, || ask(one))),
        ("one limit, seen, 2 threads", &mut || work.on_threads(2, DRAWS, || ask(one_seen))),
    ]);
    let median: Vec<f64> = times.iter().map(|times| times.median()).collect();
    more("to be seen, one limit", median[1] - median[0], AT_MOST);
    more("to be seen, four limits", median[3] - median[2], AT_MOST);
    more("to be seen, one limit, 2 threads", median[5] - median[4], AT_MOST);
}

/// With an observer as the server has it.
fn seen(limiter: Limiter<MemoryStore>) -> Limiter<MemoryStore> {
    limiter.with_witness(Arc::new(Observer::new(ObserverConfig::default())))
}

fn kept(limiter: Limiter<MemoryStore>) -> &'static Limiter<MemoryStore> {
    Box::leak(Box::new(limiter))
}
