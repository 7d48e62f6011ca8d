//! What is given back is what was taken, although the clocks of claims are not in order: those of two shards differ, and
//! of two threads the one that read the clock first may come second.

use fastrand::Rng;
use tollgate_core::{Algorithm, Ask, Mode, Settlement, Span, Timestamp};

use super::Subject;
use super::world::{START, TestCounter, claim, one_of_each, settle, settle_one};

const AMOUNT: u64 = 1_000;
const CLAIMS: u128 = 60;
const HISTORIES: u64 = 5;
/// By how much the times of claims differ, in microseconds.
const DISORDER: u64 = 200;
/// More units than drain from a bucket, summed over all claims: 60 times 400 µs of 100 a second.
const MAX_DRAINED: u64 = 3;

/// Runs this part.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        for seed in 0..HISTORIES {
            refunds_are_exact(&subject, &counter, seed);
        }
    }
}

/// Many claims on two partitions, at times in no order, and their returns, in another order.
fn refunds_are_exact<S: Subject>(subject: &S, counter: &TestCounter, seed: u64) {
    let (rule, mut rng) = (counter.scope.rule(), Rng::with_seed(seed));
    let names = [format!("x{seed}"), format!("y{seed}")];
    let disorder = |rng: &mut Rng, from: Timestamp| from.after(Span::from_micros(rng.u64(0..DISORDER)));
    let start = START.after(Span::from_secs(1));
    let mut taken: Vec<(u128, Settlement)> = Vec::new();
    for id in 0..CLAIMS {
        subject.set_now(disorder(&mut rng, start));
        let units = rng.u64(1..4);
        let settlement = settle(subject, &claim(id, names.iter().map(|name| counter.take(name, units))));
        assert!(settlement.readings.iter().all(|reading| reading.taken > 0), "{rule}: {settlement:?}");
        taken.push((id, settlement));
    }
    rng.shuffle(&mut taken);
    for (id, first) in taken {
        subject.set_now(disorder(&mut rng, start.after(Span::from_micros(DISORDER))));
        let back = Ask::Return { taken_at: first.at };
        let charges = names.iter().zip(&first.readings);
        let charges = charges.map(|(name, reading)| counter.charge(name, back, reading.taken, Mode::Enforce));
        let returned = settle(subject, &claim(id, charges));
        for (took, gave) in first.readings.iter().zip(&returned.readings) {
            assert_eq!(gave.taken, took.taken, "{rule}: history {seed}, claim {id}: given back and taken");
        }
    }
    for name in &names {
        let left = settle_one(subject, u128::MAX, counter.take(name, 0)).remaining;
        // What drained from a bucket before a return is not given back: of each claim, a small part of a unit.
        let parts = if matches!(counter.limit.algorithm(), Algorithm::Bucket { .. }) { MAX_DRAINED } else { 0 };
        assert!((AMOUNT - parts..=AMOUNT).contains(&left), "{rule}: history {seed}: {left} of {AMOUNT} are left");
    }
}
