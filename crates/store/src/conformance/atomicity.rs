//! A claim is settled completely or not at all, and a refusal changes nothing.
//!
//! Differences inside a store could be invisible to a peek. Two stores therefore get the same history, one of them
//! with additional refused claims, and from then on both must give the same answers for as long as anything is
//! stored.

use tollgate_core::{Ask, Charge, Mode, Span, Wait};

use super::Subject;
use super::world::{START, TestCounter, claim, one_of_each, peek, settle, settle_one};

const VALUES: [&str; 3] = ["x", "y", "z"];
const AMOUNT: u64 = 10;

/// Runs this part.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    a_refusal_changes_nothing(&make);
    one_without_room_stops_all(&make);
    charges_on_one_key_are_summed(&make);
}

/// A claim on all counters of which one has no room changes none of them, now or later.
pub fn a_refusal_changes_nothing<S: Subject>(make: impl Fn() -> S) {
    let counters = one_of_each(AMOUNT);
    for full in &counters {
        let (refused, spared) = (make(), make());
        for subject in [&refused, &spared] {
            subject.set_now(START);
            fill(subject, full, "y");
            let others = counters.iter().filter(|counter| counter.scope != full.scope);
            for (id, counter) in (1000..).zip(others) {
                settle_one(subject, id, counter.take("x", 3));
            }
            subject.set_now(START.after(Span::from_micros(1)));
        }
        let before = peek(&refused, &counters, &VALUES);
        for (id, requested) in (2000..).zip([1, 2, AMOUNT, AMOUNT + 1, u64::MAX]) {
            let settlement = settle(&refused, &claim(id, on_everything(&counters, full, requested)));
            assert!(
                settlement.readings.iter().all(|reading| reading.taken == 0),
                "{}: a refused claim took units: {:?}",
                full.scope.rule(),
                settlement.readings
            );
        }
        assert_eq!(
            before,
            peek(&refused, &counters, &VALUES),
            "{}: a refused claim changed a counter",
            full.scope.rule()
        );
        for step in 1..=50u64 {
            let now = START.after(Span::from_micros(step * 500_009));
            refused.set_now(now);
            spared.set_now(now);
            let (one, other) = (peek(&refused, &counters, &VALUES), peek(&spared, &counters, &VALUES));
            assert_eq!(one, other, "{}: a refused claim shows at {now:?}", full.scope.rule());
        }
    }
}

/// In a claim on several partitions, one counter without room refuses the claim; once it has room, all pay.
pub fn one_without_room_stops_all<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        fill(&subject, &counter, "y");
        let requested = || claim(77, VALUES.iter().map(|value| counter.take(value, 1)));
        let refused = settle(&subject, &requested());
        let admits: Vec<bool> = refused.readings.iter().map(|reading| reading.admits).collect();
        assert_eq!(admits, [true, false, true], "{}: only one is full", counter.scope.rule());
        assert!(refused.readings.iter().all(|reading| reading.taken == 0), "{}: none may pay", counter.scope.rule());
        let Wait::For(wait) = refused.readings[1].wait else {
            panic!("{}: a full counter gave the wait {:?}", counter.scope.rule(), refused.readings[1].wait)
        };
        subject.set_now(START.after(Span::from_micros(wait.as_micros() - 1)));
        let early = settle(&subject, &requested());
        assert!(!early.readings[1].admits, "{}: admitted before its wait was over", counter.scope.rule());
        subject.set_now(START.after(wait));
        let paid = settle(&subject, &requested());
        assert!(paid.readings.iter().all(|reading| reading.taken == 1), "{}: all must pay", counter.scope.rule());
    }
}

/// Two charges on one key act as one with the sum.
pub fn charges_on_one_key_are_summed<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT).iter().filter(|counter| counter.scope.rule() != "holds") {
        let subject = make();
        subject.set_now(START);
        let twice = |units| claim(5, [counter.take("x", units), counter.take("x", units)]);
        let over = settle(&subject, &twice(AMOUNT / 2 + 1));
        for reading in &over.readings {
            assert!(!reading.admits, "{}: two halves and more than the quota", counter.scope.rule());
            assert_eq!(reading.wait, Wait::Forever, "{}: the sum never fits", counter.scope.rule());
        }
        let just = settle(&subject, &twice(AMOUNT / 2));
        assert!(just.readings.iter().all(|reading| reading.taken == AMOUNT / 2 && reading.remaining == 0));
    }
}

/// Takes all available units.
fn fill<S: Subject>(subject: &S, counter: &TestCounter, value: &str) {
    for id in 0..u128::from(AMOUNT) {
        let reading = settle_one(subject, id, counter.take(value, 1));
        assert!(reading.admits, "{}: no room for unit {id} of {AMOUNT}", counter.scope.rule());
    }
    assert!(!settle_one(subject, 999, counter.take(value, 1)).admits, "{}: room past the limit", counter.scope.rule());
}

/// Charges of every kind that a refusal must undo, and the one that refuses.
fn on_everything<'a>(counters: &'a [TestCounter], full: &'a TestCounter, requested: u64) -> Vec<Charge<'a>> {
    let mut charges = Vec::new();
    for counter in counters {
        charges.push(counter.take("x", requested));
        charges.push(counter.charge("z", Ask::UpTo, requested, Mode::Enforce));
        charges.push(counter.charge("z", Ask::Exactly, requested, Mode::Soft));
        charges.push(counter.charge("z", Ask::Exactly, requested, Mode::Shadow));
        charges.push(counter.charge("x", Ask::Exactly, requested, Mode::AnyOf));
    }
    charges.push(full.take("y", 1));
    charges
}
