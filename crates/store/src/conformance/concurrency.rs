//! Concurrent threads on the same keys: never more than the limit, never less, no deadlock.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate_core::{Ask, Mode};

use super::Subject;
use super::world::{START, claim, one_of_each, settle, settle_one};

const THREADS: u64 = 4;
const CLAIMS: u64 = 200;
const AMOUNT: u64 = 300;

/// Runs this part.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    exactly_the_limit(&make);
    exactly_the_limit_in_pieces(&make);
    exactly_the_limit_over_partitions(&make);
}

/// Threads that take one unit each from one key are admitted exactly as often as the limit allows.
pub fn exactly_the_limit<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        let admitted = in_threads(|id| u64::from(settle_one(&subject, id, counter.take("x", 1)).admits));
        assert_eq!(admitted, AMOUNT, "{}: admitted by {THREADS} threads", counter.scope.rule());
    }
}

/// Leases and claims of several units also add up to the limit.
pub fn exactly_the_limit_in_pieces<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT).iter().filter(|counter| counter.scope.rule() != "holds") {
        let subject = make();
        subject.set_now(START);
        let taken = in_threads(|id| {
            let charge = match id % 2 {
                0 => counter.take("x", 2),
                _ => counter.charge("x", Ask::UpTo, 3, Mode::Enforce),
            };
            settle_one(&subject, id, charge).taken
        });
        assert_eq!(taken, AMOUNT, "{}: taken by {THREADS} threads", counter.scope.rule());
    }
}

/// Claims on the same partitions in different orders take the same number of units from both counters.
pub fn exactly_the_limit_over_partitions<S: Subject>(make: impl Fn() -> S) {
    for (narrow, wide) in one_of_each(AMOUNT).iter().zip(&one_of_each(2 * AMOUNT)) {
        let subject = make();
        subject.set_now(START);
        let admitted = in_threads(|id| {
            let mut charges = vec![narrow.take("x", 1), wide.take("y", 1), wide.take("z", 1)];
            if id % 2 == 0 {
                charges.reverse();
            }
            let settlement = settle(&subject, &claim(id, charges));
            u64::from(settlement.readings.iter().all(|reading| reading.taken == 1))
        });
        assert_eq!(admitted, AMOUNT, "{}: admitted on three partitions", narrow.scope.rule());
        for value in ["y", "z"] {
            let left = settle_one(&subject, u128::MAX, wide.take(value, 0)).remaining;
            assert_eq!(left, AMOUNT, "{}: a refused claim was paid in part", narrow.scope.rule());
        }
    }
}

/// Calls `each` with many ids from several threads that start together, and returns the sum of the results.
pub(super) fn in_threads(each: impl Fn(u128) -> u64 + Sync) -> u64 {
    let start = Barrier::new(THREADS as usize);
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (each, start, total) = (&each, &start, &total);
            scope.spawn(move || {
                start.wait();
                for index in 0..CLAIMS {
                    total.fetch_add(each(u128::from(thread * CLAIMS + index)), Ordering::Relaxed);
                }
            });
        }
    });
    total.load(Ordering::Relaxed)
}
