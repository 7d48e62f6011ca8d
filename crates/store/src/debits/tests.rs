//! The outbox without a store: whatever happens to messages, no unit is sent twice and none disappears uncounted.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, ClaimId, GlobalTerms, Key, Limit, Mode, OnFailure, Period, RegionId, Scope, Shortcuts,
    Span, Timestamp, Value,
};

use super::UnitCounts;
use super::message::{DebitMessage, Delivery};
use super::outbox::RegionOutbox;
use super::pace::Pace;
use super::takes::{HandedOver, Take, Takes};
use super::waiting::{Capacity, HasTarget as _};
use crate::clock::Steady;
use crate::sharded::ShardId;

mod bounds;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const KEYS: usize = 6;
const SHARDS: u32 = 3;
/// The bytes in the values of a key.
const KEY_BYTES: usize = 8;

/// The counters of a rule.
struct Rule {
    scope: Scope,
    limit: Limit,
    names: Vec<String>,
}

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    Take {
        key: usize,
        units: u64,
        is_due: bool,
    },
    Return {
        key: usize,
        units: u64,
    },
    Reset {
        key: usize,
    },
    Wait {
        micros: u64,
    },
    Beat,
    /// Some messages leave.
    Send {
        max: usize,
    },
    /// A shard's breaker opens or closes.
    Reach {
        shard: u32,
        is_reachable: bool,
    },
    /// Another node takes over, or gives back, the counters of the last shard.
    TakeOver,
    /// One of those that left is answered.
    Answer {
        which: usize,
        delivery: Delivery,
    },
}

/// Takes, the outbox of one region, and what should have become of all units.
struct World {
    rule: Rule,
    takes: Takes,
    outbox: RegionOutbox,
    micros: u64,
    in_flight: Vec<DebitMessage>,
    unreachable: HashSet<ShardId>,
    took_over: bool,
    /// By key.
    taken: HashMap<u128, u64>,
    left: HashMap<u128, u64>,
    back: HashMap<u128, u64>,
    returned: HashMap<u128, u64>,
}

impl Rule {
    fn new(algorithm: Algorithm, seconds: u64) -> Rule {
        let limit = Limit::new(10_000, Period::fixed(Span::from_secs(seconds)).unwrap(), algorithm).unwrap();
        let scope = Scope::new("d", "r", algorithm, limit.period(), Home::Caller(0));
        let scope = scope.with_global(Some(GlobalTerms::default()));
        Rule { scope, limit, names: (0..KEYS).map(|key| format!("caller {key}")).collect() }
    }

    fn number_of(&self, key: &Key<'_>) -> usize {
        let name = |number: &usize| key.values() == [Value::Text(&self.names[*number])];
        (0..KEYS).find(name).unwrap()
    }

    fn charge(&self, key: usize) -> Charge<'_> {
        Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(&self.names[key])]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units: 1,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Leases,
        }
    }
}

fn room_for(keys: usize) -> Capacity {
    Capacity { keys, bytes: keys * KEY_BYTES }
}

/// The shard of a key. What is in the last one may be in another instead.
fn shard_of(key: u128, took_over: bool) -> ShardId {
    let shard = (key % u128::from(SHARDS)) as u32;
    ShardId(if took_over && shard == SHARDS - 1 { SHARDS } else { shard })
}

impl World {
    fn new(rule: Rule, capacity: Capacity) -> World {
        World {
            rule,
            takes: Takes::new(capacity),
            outbox: RegionOutbox::new(capacity, Pace::new(1_000_000, 1_000_000)),
            micros: 0,
            in_flight: Vec::new(),
            unreachable: HashSet::new(),
            took_over: false,
            taken: HashMap::new(),
            left: HashMap::new(),
            back: HashMap::new(),
            returned: HashMap::new(),
        }
    }

    fn shard(&self, hash: u128) -> ShardId {
        shard_of(hash, self.took_over)
    }

    fn at(&self) -> Timestamp {
        START.after(Span::from_micros(self.micros))
    }

    fn now(&self) -> Steady {
        Steady::from_micros(self.micros)
    }

    fn apply(&mut self, event: &Event) {
        let (at, now) = (self.at(), self.now());
        match event {
            Event::Take { key, units, is_due } => {
                let take = Take { hash: *key as u128, units: *units, is_due: *is_due, servers: 1, at, now };
                self.takes.add(take, &self.rule.charge(*key));
                *self.taken.entry(*key as u128).or_default() += units;
            }
            Event::Return { key, units } => {
                let hash = *key as u128;
                // The store gives back no more than what was taken.
                let returned = self.returned.entry(hash).or_default();
                let units = (*units).min(self.taken.get(&hash).copied().unwrap_or(0) - *returned);
                *returned += units;
                self.takes.give_back(hash, &self.rule.charge(*key), units, at, at, now);
            }
            Event::Reset { key } => {
                self.takes.forget(*key as u128);
                self.outbox.forget(*key as u128);
            }
            Event::Wait { micros } => self.micros += micros,
            Event::Beat => {
                let HandedOver { due, returns } = self.takes.hand_over(at);
                for entry in due {
                    let shard = self.shard(entry.target.hash);
                    self.outbox.add(entry, shard, at);
                }
                for returned in returns.into_items() {
                    let shard = self.shard(returned.target.hash);
                    self.outbox.give_back(returned, shard, at);
                }
                let (unreachable, took_over) = (&self.unreachable, self.took_over);
                let shard_of = |key: Key<'_>| shard_of(self.rule.number_of(&key) as u128, took_over);
                self.outbox.reroute(|shard| !unreachable.contains(&shard), shard_of, at);
            }
            Event::Send { max } => {
                let is_reachable = |shard| !self.unreachable.contains(&shard);
                self.in_flight.extend(self.outbox.take(*max, at, now, is_reachable));
            }
            Event::Reach { shard, is_reachable: true } => drop(self.unreachable.remove(&ShardId(*shard))),
            Event::Reach { shard, is_reachable: false } => drop(self.unreachable.insert(ShardId(*shard))),
            Event::TakeOver => self.took_over = !self.took_over,
            Event::Answer { which, delivery } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let message = self.in_flight.swap_remove(which % self.in_flight.len());
                if *delivery != Delivery::NotSent {
                    let arrived = if message.is_return() { &mut self.back } else { &mut self.left };
                    *arrived.entry(message.target().hash).or_default() += message.units();
                }
                let shard = self.shard(message.target().hash);
                self.outbox.end(message, *delivery, shard, at, now);
            }
        }
    }

    fn check(&self) {
        let mut counts = self.takes.counts();
        counts += self.outbox.counts();
        let in_flight = self.in_flight.iter().filter(|message| !message.is_return()).map(DebitMessage::units);
        let waiting = self.takes.waiting_units() + self.outbox.waiting_units() + in_flight.sum::<u64>();
        let UnitCounts { sent, unsure, aged, dropped, evicted, returned, .. } = counts;
        let taken: u64 = self.taken.values().sum();
        assert_eq!(taken, sent + unsure + aged + dropped + evicted + returned + waiting, "{counts:?}, {waiting} wait");
        assert_eq!(sent + unsure, self.left.values().sum::<u64>());
        for (key, left) in &self.left {
            assert!(*left <= self.taken[key], "{left} units of {} were sent", self.taken[key]);
        }
        for (key, back) in &self.back {
            assert!(*back <= self.returned[key], "{back} units of {} were given back", self.returned[key]);
        }
        let Capacity { keys, bytes } = self.takes.capacity;
        // The last one may exceed the bytes.
        let max = keys.min(bytes.div_ceil(KEY_BYTES)).max(1);
        assert!(self.takes.len() <= max && self.outbox.len() <= 2 * max);
        for (items, bytes) in [self.takes.items_and_bytes(), self.outbox.items_and_bytes()] {
            assert_eq!(bytes, items * KEY_BYTES);
        }
        let oldest = self.outbox.oldest().is_some_and(|since| since <= self.now());
        assert_eq!(oldest, self.outbox.has_debits() || self.in_flight.iter().any(|message| !message.is_return()));
    }
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindow { sub_windows: 1 }),
        Just(Algorithm::SlidingWindow { sub_windows: 5 }),
        Just(Algorithm::SlidingLog),
        (1u64..20_000).prop_map(|burst| Algorithm::Bucket { burst, paced: false }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let delivery = prop_oneof![
        4 => Just(Delivery::Done),
        2 => Just(Delivery::NotSent),
        1 => Just(Delivery::Unsure),
    ];
    prop_oneof![
        6 => (0..KEYS, 1..200u64, any::<bool>()).prop_map(|(key, units, is_due)| Event::Take { key, units, is_due }),
        2 => (0..KEYS, 1..200u64).prop_map(|(key, units)| Event::Return { key, units }),
        1 => (0..KEYS).prop_map(|key| Event::Reset { key }),
        3 => prop_oneof![1..1_000u64, 1..2_000_000u64].prop_map(|micros| Event::Wait { micros }),
        3 => Just(Event::Beat),
        3 => (1..10usize).prop_map(|max| Event::Send { max }),
        2 => (0..=SHARDS, any::<bool>()).prop_map(|(shard, is_reachable)| Event::Reach { shard, is_reachable }),
        1 => Just(Event::TakeOver),
        4 => (0..1_000usize, delivery).prop_map(|(which, delivery)| Event::Answer { which, delivery }),
    ]
}

proptest! {
    #[test]
    fn no_unit_is_sent_twice_and_none_disappears(
        algorithm in algorithms(),
        seconds in prop_oneof![Just(1u64), Just(60), Just(86_400)],
        keys in 1..8usize,
        bytes in 1..8 * KEY_BYTES,
        history in prop::collection::vec(events(), 1..120),
    ) {
        let mut world = World::new(Rule::new(algorithm, seconds), Capacity { keys, bytes });
        for event in &history {
            world.apply(event);
            world.check();
        }
    }

    /// With room, nothing is given back in the other region before it was taken there.
    #[test]
    fn no_return_overtakes_its_debit(history in prop::collection::vec(events(), 1..120)) {
        let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400 * 30), room_for(100));
        for event in history.iter().filter(|event| !matches!(event, Event::Reset { .. })) {
            world.apply(event);
            world.check();
            for (key, back) in &world.back {
                let left = world.left.get(key).copied().unwrap_or(0);
                prop_assert!(*back <= left, "{back} units were given back of {left} that arrived");
            }
        }
        // In the end the other region counts what is left.
        world.unreachable.clear();
        for _ in 0..3 {
            world.apply(&Event::Beat);
            world.apply(&Event::Send { max: 1_000 });
            while !world.in_flight.is_empty() {
                world.apply(&Event::Answer { which: 0, delivery: Delivery::Done });
            }
            // Those below their threshold, too.
            for key in 0..KEYS {
                world.apply(&Event::Take { key, units: 1, is_due: true });
            }
        }
        world.apply(&Event::Beat);
        world.apply(&Event::Send { max: 1_000 });
        while !world.in_flight.is_empty() {
            world.apply(&Event::Answer { which: 0, delivery: Delivery::Done });
        }
        world.check();
        for key in 0..KEYS as u128 {
            let units = |of: &HashMap<u128, u64>| of.get(&key).copied().unwrap_or(0);
            prop_assert_eq!(units(&world.taken) - units(&world.returned), units(&world.left) - units(&world.back));
        }
    }

    /// With room, and answers in the end, all that still counts arrives.
    #[test]
    fn what_was_not_sent_arrives_after_a_partition(history in prop::collection::vec(events(), 1..120)) {
        let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400 * 30), room_for(100));
        let is_left_out =
            |event: &Event| matches!(event, Event::Reset { .. } | Event::Return { .. } | Event::Reach { is_reachable: false, .. });
        let retained = history.iter().filter(|event| !is_left_out(event));
        for event in retained {
            let event = match event {
                Event::Answer { which, .. } => Event::Answer { which: *which, delivery: Delivery::NotSent },
                Event::Take { key, units, .. } => Event::Take { key: *key, units: *units, is_due: true },
                other => other.clone(),
            };
            world.apply(&event);
            world.check();
        }
        assert_eq!(world.outbox.counts().sent, 0);
        for _ in 0..2 {
            world.apply(&Event::Beat);
            world.apply(&Event::Send { max: 1_000 });
            while let Some(message) = world.in_flight.pop() {
                *world.left.entry(message.target().hash).or_default() += message.units();
                let shard = world.shard(message.target().hash);
                world.outbox.end(message, Delivery::Done, shard, world.at(), world.now());
            }
        }
        world.check();
        assert_eq!(world.left, world.taken);
        assert_eq!((world.outbox.len(), world.outbox.oldest()), (0, None));
    }
}

/// The units of a key that are sent, if `units` were taken at `taken` and nothing could be sent before `sent`, both in
/// milliseconds since the begin of a period of a minute.
fn sent_later(algorithm: Algorithm, units: u64, taken: u64, sent: u64) -> u64 {
    let mut world = World::new(Rule::new(algorithm, 60), room_for(10));
    world.micros = taken * 1_000;
    world.apply(&Event::Take { key: 0, units, is_due: true });
    world.apply(&Event::Beat);
    world.micros = sent * 1_000;
    world.apply(&Event::Send { max: 10 });
    world.check();
    world.in_flight.iter().map(DebitMessage::units).sum()
}

#[test]
fn what_no_longer_counts_is_not_sent() {
    let bucket = Algorithm::Bucket { burst: 500, paced: false };
    for (algorithm, taken, sent, expected) in [
        (Algorithm::FixedWindow, 0, 59_999, 600),
        (Algorithm::FixedWindow, 59_900, 60_000, 0),
        // It drains 10,000 a minute, from two seconds on.
        (bucket, 0, 100, 600),
        (bucket, 0, 2_000, 600),
        (bucket, 0, 2_100, 584),
        (bucket, 0, 5_000, 100),
        (bucket, 0, 5_600, 0),
        (Algorithm::SlidingWindow { sub_windows: 1 }, 59_900, 60_000, 600),
        (Algorithm::SlidingWindow { sub_windows: 1 }, 30_000, 90_000, 300),
        (Algorithm::SlidingWindow { sub_windows: 60 }, 30_900, 31_000, 600),
        (Algorithm::SlidingLog, 30_000, 150_001, 0),
    ] {
        assert_eq!(sent_later(algorithm, 600, taken, sent), expected, "{algorithm:?} {taken} {sent}");
    }
}

#[test]
fn units_below_the_threshold_wait_and_are_then_all_due() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
    for is_due in [false, false, true] {
        world.apply(&Event::Take { key: 0, units: 10, is_due });
        world.apply(&Event::Take { key: 1, units: 10, is_due: false });
        world.apply(&Event::Wait { micros: 3_000_000 });
        world.apply(&Event::Beat);
    }
    // That they waited is no lag: it begins when they are due.
    assert_eq!(world.outbox.oldest(), Some(Steady::from_micros(6_000_000)));
    world.apply(&Event::Send { max: 10 });
    assert_eq!(world.in_flight.iter().map(DebitMessage::units).collect::<Vec<_>>(), [30]);
    assert_eq!(world.takes.waiting_units(), 30);
}

/// A bucket that is used less than its threshold hides no more than the threshold from the others in the time in which it
/// refills, and one that drains as fast as it fills is sent all the same.
#[test]
fn buckets_below_the_threshold_wait_until_they_have_refilled() {
    let bucket = Algorithm::Bucket { burst: 10_000, paced: false };
    let mut world = World::new(Rule::new(bucket, 60), room_for(10));
    for second in 1..60 {
        world.apply(&Event::Take { key: 0, units: 8, is_due: false });
        world.apply(&Event::Wait { micros: 1_000_000 });
        world.apply(&Event::Beat);
        assert_eq!((world.takes.waiting_units(), world.outbox.waiting_units()), (8 * second, 0));
    }
    world.apply(&Event::Take { key: 0, units: 27, is_due: false });
    assert_eq!(world.takes.waiting_units(), 499);
    for key in [0, 1] {
        world.apply(&Event::Take { key, units: 1, is_due: false });
    }
    world.apply(&Event::Beat);
    world.check();
    assert_eq!((world.takes.waiting_units(), world.outbox.waiting_units()), (1, 500));
    world.apply(&Event::Wait { micros: 60_010_000 });
    world.apply(&Event::Take { key: 1, units: 3, is_due: false });
    assert_eq!((world.takes.waiting_units(), world.takes.counts().aged), (3, 1));
}

/// As much may wait on each of the other servers of the region, of which a server knows nothing.
#[test]
fn servers_divide_the_threshold() {
    let bucket = Algorithm::Bucket { burst: 10_000, paced: false };
    for (servers, due_at) in [(0, 500), (1, 500), (4, 125), (20, 25), (1_000, 1)] {
        let mut world = World::new(Rule::new(bucket, 60), room_for(10));
        for unit in 1..=due_at {
            let (at, now) = (world.at(), world.now());
            let take = Take { hash: 0, units: 1, is_due: false, servers, at, now };
            assert_eq!(world.takes.add(take, &world.rule.charge(0)), unit == due_at, "{unit} with {servers} servers");
        }
    }
}

#[test]
fn what_was_sent_before_is_given_back_with_its_date() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
    world.apply(&Event::Take { key: 0, units: 50, is_due: true });
    world.apply(&Event::Beat);
    world.apply(&Event::Send { max: 10 });
    let message = world.in_flight.remove(0);
    world.outbox.end(message, Delivery::Done, ShardId(0), world.at(), world.now());
    world.left.insert(0, 50);
    world.apply(&Event::Take { key: 0, units: 20, is_due: true });
    world.apply(&Event::Return { key: 0, units: 60 });
    world.apply(&Event::Beat);
    world.apply(&Event::Send { max: 10 });
    world.check();
    let [message] = &world.in_flight[..] else { panic!("{:?}", world.in_flight) };
    assert!(message.is_return() && message.units() == 40, "{message:?}");
    let claim = message.claim(RegionId::new(2), ClaimId(1));
    assert_eq!(claim.charges[0].ask, Ask::Return { taken_at: START });
    assert_eq!(claim.charges[0].key.region(), RegionId::new(2));
    assert_eq!(world.takes.counts().returned, 20);
}

/// A message without an answer may or may not have been counted: what it is about waits for that.
#[test]
fn what_is_given_back_waits_for_the_answer_to_its_debit() {
    for (delivery, back, waiting) in [(Delivery::Done, 30, 0), (Delivery::Unsure, 30, 0), (Delivery::NotSent, 0, 20)] {
        let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
        world.apply(&Event::Take { key: 0, units: 50, is_due: true });
        world.apply(&Event::Beat);
        world.apply(&Event::Send { max: 10 });
        world.apply(&Event::Return { key: 0, units: 30 });
        world.apply(&Event::Beat);
        world.apply(&Event::Send { max: 10 });
        assert_eq!(world.in_flight.len(), 1, "the return has overtaken the debit");
        world.apply(&Event::Answer { which: 0, delivery });
        world.check();
        assert_eq!(world.outbox.waiting_units(), waiting, "{delivery:?}");
        world.apply(&Event::Wait { micros: 1_000_000 });
        world.apply(&Event::Send { max: 10 });
        let returned = world.in_flight.iter().filter(|message| message.is_return()).map(DebitMessage::units);
        assert_eq!(returned.sum::<u64>(), back, "{delivery:?}");
    }
}

/// What is on its way when a counter is reset can't be recalled, but if it did not arrive, it is not sent again.
#[test]
fn what_did_not_arrive_before_a_reset_is_not_sent_after_it() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
    world.apply(&Event::Take { key: 0, units: 50, is_due: true });
    world.apply(&Event::Beat);
    world.apply(&Event::Send { max: 10 });
    world.apply(&Event::Reset { key: 0 });
    world.apply(&Event::Take { key: 0, units: 3, is_due: true });
    world.apply(&Event::Beat);
    world.apply(&Event::Answer { which: 0, delivery: Delivery::NotSent });
    world.check();
    assert_eq!((world.outbox.waiting_units(), world.outbox.counts().returned), (3, 50));
}

#[test]
fn little_is_sent_into_a_partition() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
    let mut sent = Vec::new();
    for beat in 0..40 {
        for key in 0..KEYS {
            world.apply(&Event::Take { key, units: 1, is_due: true });
        }
        world.apply(&Event::Beat);
        let before = world.in_flight.len();
        world.apply(&Event::Send { max: 100 });
        sent.push(world.in_flight.len() - before);
        world.check();
        // Nothing is answered within a second.
        if beat % 10 == 9 {
            world.micros += 1;
            while !world.in_flight.is_empty() {
                world.apply(&Event::Answer { which: 0, delivery: Delivery::Unsure });
            }
        }
        world.apply(&Event::Wait { micros: 100_000 });
    }
    assert_eq!(sent[..4], [KEYS, KEYS, KEYS, 0], "until it takes too long");
    let shards = SHARDS as usize;
    assert_eq!(sent[4..].iter().sum::<usize>(), 3 * shards, "one at a time for each shard: {sent:?}");
    // The first answer of a shard ends it there.
    world.apply(&Event::Send { max: 100 });
    assert_eq!(world.in_flight.len(), shards);
    world.apply(&Event::Answer { which: 0, delivery: Delivery::Done });
    world.apply(&Event::Send { max: 100 });
    assert_eq!(world.in_flight.len(), shards - 1 + KEYS / shards - 1);
    world.check();
}

/// Keys 0 and 3 are in the first shard, which does not answer or whose breaker is open.
#[test]
fn a_shard_that_is_away_does_not_hold_up_the_others() {
    for is_mute in [true, false] {
        let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
        if !is_mute {
            world.apply(&Event::Reach { shard: 0, is_reachable: false });
        }
        for beat in 0..20 {
            for key in 0..KEYS {
                world.apply(&Event::Take { key, units: 1, is_due: true });
            }
            world.apply(&Event::Beat);
            world.apply(&Event::Send { max: 100 });
            let (away, answered): (Vec<_>, Vec<_>) =
                std::mem::take(&mut world.in_flight).into_iter().partition(|message| message.shard == ShardId(0));
            world.in_flight = answered;
            assert_eq!(world.in_flight.len(), 4, "beat {beat}");
            while !world.in_flight.is_empty() {
                world.apply(&Event::Answer { which: 0, delivery: Delivery::Done });
            }
            world.in_flight = away;
            world.check();
            world.apply(&Event::Wait { micros: 100_000 });
        }
        let sent = if is_mute { 2 * 3 } else { 0 };
        assert_eq!(world.in_flight.iter().map(DebitMessage::units).sum::<u64>(), sent);
        assert_eq!(world.outbox.waiting_units(), 40 - sent);
        assert_eq!(world.outbox.oldest(), Some(Steady::from_micros(0)), "the regions are apart all the same");
    }
}

#[test]
fn what_waits_for_a_shard_is_sent_to_the_one_that_took_over() {
    let mut world = World::new(Rule::new(Algorithm::FixedWindow, 86_400), room_for(10));
    world.apply(&Event::Reach { shard: 2, is_reachable: false });
    for key in 0..KEYS {
        world.apply(&Event::Take { key, units: 1, is_due: true });
    }
    world.apply(&Event::Beat);
    world.apply(&Event::Send { max: 100 });
    assert_eq!(world.in_flight.len(), 4);
    world.apply(&Event::TakeOver);
    world.apply(&Event::Beat);
    world.apply(&Event::Send { max: 100 });
    assert_eq!(world.in_flight.len(), KEYS);
    assert!(world.in_flight[4..].iter().all(|message| message.shard == ShardId(SHARDS)));
    world.check();
}
