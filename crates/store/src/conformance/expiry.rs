//! A stale counter equals a fresh one; a live counter is never dropped.

use tollgate_core::{Ask, Mode, Span};

use super::Subject;
use super::world::{START, one_of_each, peek, settle_one};

const AMOUNT: u64 = 10;
const KEYS: u64 = 2_000;
/// Long enough that every state of ten seconds is stale.
const LATER: Span = Span::from_secs(1_000);

/// Runs this part.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    what_is_stale_is_fresh(&make);
    live_counters_are_retained(&make);
}

/// Long after its use, a counter that was even past its limit answers like one that was never used.
pub fn what_is_stale_is_fresh<S: Subject>(make: impl Fn() -> S) {
    let counters = one_of_each(AMOUNT);
    let (used, fresh) = (make(), make());
    used.set_now(START);
    for counter in &counters {
        for id in 0..u128::from(2 * AMOUNT) {
            settle_one(&used, id, counter.charge("x", Ask::Regardless, 2, Mode::Enforce));
        }
    }
    for now in [START.after(LATER), START.after(Span::from_micros(LATER.as_micros() + 1_234_567))] {
        used.set_now(now);
        fresh.set_now(now);
        assert_eq!(peek(&used, &counters, &["x"]), peek(&fresh, &counters, &["x"]), "a stale counter is not fresh");
    }
}

/// Many new keys do not evict live counters, even when stale ones are removed.
pub fn live_counters_are_retained<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        for (round, now) in [START, START.after(LATER)].into_iter().enumerate() {
            subject.set_now(now);
            let name = |key: u64| format!("{round}-{key}");
            for key in 0..KEYS {
                let reading = settle_one(&subject, 1, counter.take(&name(key), 1));
                assert!(reading.admits, "{}: a new key has no room", counter.scope.rule());
            }
            for key in 0..KEYS {
                let left = settle_one(&subject, 2, counter.take(&name(key), 0)).remaining;
                assert_eq!(left, AMOUNT - 1, "{}: key {key} was forgotten", counter.scope.rule());
            }
        }
    }
}
