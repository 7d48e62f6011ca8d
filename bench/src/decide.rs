//! One whole decision in process, among a million keys, on one thread and on two.

use std::hint::black_box;

use tollgate::{Limiter, MemoryStore};

use crate::contenders::{FOUR, Limitador, ONE, check, governor, tollgate};
use crate::rounds::{take_turns, verdict};
use crate::workload::Workload;

const KEYS: usize = 1_000_000;
const DRAWS: usize = 2_000_000;
/// Limitador is so much slower that it gets fewer, and its time still counts most of a round.
const SLOW_DRAWS: usize = 100_000;

pub fn run() {
    println!("one decision, {KEYS} keys, Zipf 1.0, {DRAWS} draws a round");
    let work = Workload::zipf(KEYS, DRAWS);
    let (one, four) = (&*Box::leak(Box::new(tollgate(ONE))), &*Box::leak(Box::new(tollgate(FOUR))));
    let (peer, slow) = (governor(), Limitador::new(KEYS as u64));
    let ask_governor = || |key: &String| peer.check_key(key).is_ok();
    let ask_slow = || |key: &String| slow.check(key);
    let ask = |limiter: &'static Limiter<MemoryStore>| move |key: &String| check(limiter, &[("api_key", key)]);
    let (ask_one, ask_four) = (|| ask(one), || ask(four));

    let times = take_turns(&mut [
        ("governor, bare keyed check", &mut || work.on_threads(1, DRAWS, ask_governor)),
        ("tollgate, one limit", &mut || work.on_threads(1, DRAWS, ask_one)),
        ("tollgate, four limits, all or nothing", &mut || work.on_threads(1, DRAWS, ask_four)),
        ("limitador, check and update", &mut || work.on_threads(1, SLOW_DRAWS, ask_slow)),
        ("governor, 2 threads", &mut || work.on_threads(2, DRAWS, ask_governor)),
        ("tollgate, one limit, 2 threads", &mut || work.on_threads(2, DRAWS, ask_one)),
    ]);
    let median: Vec<f64> = times.iter().map(|times| times.median()).collect();
    verdict("tollgate to governor, 1 thread", median[1] / median[0], 1.0);
    verdict("tollgate to governor, 2 threads", median[5] / median[4], 1.0);
    verdict("four limits to one", median[2] / median[1], 2.0);
    verdict("tollgate to limitador", median[1] / median[3], 1.0 / 15.0);
}

impl Workload {
    /// Asks for the first so many draws, shared out among threads, and says how many each thread requested: what is measured is
    /// how long a decision takes while others decide too.
    pub fn on_threads<A: FnMut(&String) -> bool>(
        &self,
        threads: usize,
        draws: usize,
        worker: impl Fn() -> A + Sync,
    ) -> usize {
        let share = draws / threads;
        let worker = &worker;
        std::thread::scope(|scope| {
            for part in self.order[..draws].chunks(share).take(threads) {
                scope.spawn(move || {
                    let mut ask = worker();
                    for key in part {
                        black_box(ask(&self.keys[*key as usize]));
                    }
                });
            }
        });
        share
    }
}
