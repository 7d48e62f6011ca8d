//! How much is done while a lock is held.

use super::*;
use crate::debits::outbox::MAX_AT_ONCE;

/// However many counters wait of which nothing counts any more, or are looked through for some that were reset: no turn
/// holds the lock for long.
#[test]
fn a_turn_looks_at_a_bounded_number_of_counters() {
    const COUNTERS: usize = 3 * MAX_AT_ONCE;
    let rule = Rule::new(Algorithm::FixedWindow, 1);
    let mut takes = Takes::new(COUNTERS);
    let mut outbox = RegionOutbox::new(COUNTERS, Pace::new(1_000_000, 1_000_000));
    for hash in 0..COUNTERS as u128 {
        let take = Take { hash, units: 1, is_due: true, servers: 1, at: START, now: Steady::default() };
        takes.add(take, &rule.charge(0));
    }
    for entry in takes.hand_over(START).due {
        outbox.add(entry, ShardId(1), START);
    }
    let compared = std::cell::Cell::new(0);
    let (mut steps, mut from) = (0, Some((ShardId(0), Default::default())));
    while let Some(place) = from {
        let before = compared.get();
        let count = |_: &Key<'_>| {
            compared.set(compared.get() + 1);
            false
        };
        (_, from) = outbox.forget_some(count, place, 256);
        assert!(compared.get() - before <= 256);
        steps += 1;
    }
    assert_eq!((compared.get(), steps), (COUNTERS, COUNTERS / 256 + 1));

    let at = START.after(Span::from_secs(10));
    for turn in 1..=3 {
        assert!(outbox.take(256, at, Steady::from_micros(10_000_000), |_| true).is_empty());
        assert_eq!(outbox.len(), COUNTERS - turn * MAX_AT_ONCE);
    }
}
