//! How much waits, and how much is done while a lock is held.

use super::*;
use crate::debits::outbox::MAX_AT_ONCE;

/// However many counters wait of which nothing counts any more, or are looked through for some that were reset: no turn
/// holds the lock for long.
#[test]
fn a_turn_looks_at_a_bounded_number_of_counters() {
    const COUNTERS: usize = 3 * MAX_AT_ONCE;
    let rule = Rule::new(Algorithm::FixedWindow, 1);
    let mut takes = Takes::new(room_for(COUNTERS));
    let mut outbox = RegionOutbox::new(room_for(COUNTERS), Pace::new(1_000_000, 1_000_000));
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

/// However long the values of keys are: what waits has a bound in bytes, beyond which the oldest are dropped, and counted.
#[test]
fn the_bytes_of_what_waits_are_bounded() {
    const LONG: usize = 4_096;
    const ROOM_FOR: usize = 10;
    const COUNTERS: usize = 100;
    let mut rule = Rule::new(Algorithm::FixedWindow, 86_400);
    rule.names = (0..COUNTERS).map(|number| format!("{number:0LONG$}")).collect();
    let capacity = Capacity { keys: COUNTERS, bytes: ROOM_FOR * LONG };
    let full = (ROOM_FOR, ROOM_FOR * LONG);
    let lost = COUNTERS as u64 - ROOM_FOR as u64;
    let take =
        |hash, is_due| Take { hash, units: 1, is_due, servers: 1, at: START, now: Steady::from_micros(hash as u64) };

    // Units below the threshold of their limit go first.
    let mut takes = Takes::new(capacity);
    for number in 0..COUNTERS {
        takes.add(take(number as u128, false), &rule.charge(number));
    }
    assert_eq!((takes.items_and_bytes(), takes.counts().evicted), (full, lost));
    for number in 0..COUNTERS {
        takes.add(take((COUNTERS + number) as u128, true), &rule.charge(number));
    }
    assert_eq!((takes.items_and_bytes(), takes.counts().dropped), (full, lost));
    let newest = takes.hand_over(START).due.into_iter().map(|entry| entry.target.hash as usize);
    assert!(newest.eq(2 * COUNTERS - ROOM_FOR..2 * COUNTERS));
    assert_eq!(takes.items_and_bytes(), (0, 0));

    // So it is in the outbox, over all of its queues.
    let mut outbox = RegionOutbox::new(capacity, Pace::new(1_000_000, 1_000_000));
    for number in 0..COUNTERS {
        takes.add(take(number as u128, true), &rule.charge(number));
        for entry in takes.hand_over(START).due {
            outbox.add(entry, ShardId(number as u32 % SHARDS), START);
        }
    }
    assert_eq!((outbox.items_and_bytes(), outbox.counts().dropped), (full, lost));

    // What is given back of units that were sent has the same bound, apart from debits.
    for number in 0..COUNTERS {
        takes.give_back(number as u128 + 1_000, &rule.charge(number), 1, START, START, Steady::default());
    }
    assert_eq!((takes.items_and_bytes(), takes.counts().back_dropped), (full, lost));
    for number in 0..COUNTERS {
        takes.give_back(number as u128 + 1_000, &rule.charge(number), 1, START, START, Steady::default());
        for returned in takes.hand_over(START).returns.into_items() {
            outbox.give_back(returned, ShardId(number as u32 % SHARDS), START);
        }
    }
    // The first one displaced one of those that waited, and all of these went to the outbox with it.
    assert_eq!(outbox.items_and_bytes(), (2 * full.0, 2 * full.1));
    assert_eq!((takes.counts().back_dropped, outbox.counts().back_dropped), (lost + 1, lost + ROOM_FOR as u64 - 1));
}

#[test]
fn beyond_the_bound_the_oldest_are_dropped() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(3));
    for key in 0..5 {
        world.apply(&Event::Take { key, units: 1 + key as u64, is_due: true });
        world.apply(&Event::Wait { micros: 1 });
        world.apply(&Event::Beat);
        world.check();
    }
    assert_eq!((world.outbox.len(), world.outbox.counts().dropped), (3, 1 + 2));
    world.apply(&Event::Send { max: 2 });
    assert_eq!(world.in_flight.iter().map(DebitMessage::units).collect::<Vec<_>>(), [3, 4], "oldest first");
}

/// Units that no other region would know of yet are not missed.
#[test]
fn what_is_evicted_below_the_threshold_is_not_dropped() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(3));
    for (key, is_due) in [(0, false), (1, true), (2, false), (3, true), (4, true)] {
        world.apply(&Event::Take { key, units: 1 + key as u64, is_due });
        world.apply(&Event::Wait { micros: 1 });
    }
    world.check();
    assert_eq!((world.takes.counts().evicted, world.takes.counts().dropped), (1 + 3, 0));
    world.apply(&Event::Take { key: 5, units: 1, is_due: true });
    assert_eq!((world.takes.counts().evicted, world.takes.counts().dropped), (1 + 3, 2));
}
