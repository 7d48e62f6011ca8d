//! The in-memory store when it is full and under load: which counters survive, and that they stay exact.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Span, Timestamp, Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The counters of a rule.
struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Rule {
    fn new(name: &str, amount: u64, seconds: u64, algorithm: Algorithm, home: Home) -> Rule {
        let period = Period::fixed(Span::from_secs(seconds)).unwrap();
        let limit = Limit::new(amount, period, algorithm).unwrap();
        Rule { scope: Scope::new("d", name, limit.algorithm(), limit.period(), home), limit }
    }

    fn charge<'a>(&'a self, values: &[&'a str], units: u64) -> Charge<'a> {
        Charge {
            key: Key::new(&self.scope, values.iter().map(|value| Value::Text(value)).collect()),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        }
    }

    fn take(&self, store: &impl Store, caller: &str, units: u64) -> Reading {
        settle(store, 1, [self.charge(&[caller], units)]).readings[0]
    }
}

fn settle<'a>(store: &impl Store, id: u128, charges: impl IntoIterator<Item = Charge<'a>>) -> Settlement {
    block_on(store.settle(&Claim {
        id: ClaimId(id),
        charges: charges.into_iter().collect(),
        once: None,
        timeout: None,
    }))
}

fn store(max_keys: usize) -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::at(START);
    (MemoryConfig { max_keys, grace: Span::ZERO, ..MemoryConfig::default() }.build_with(clock.clone()), clock)
}

const FIXED: Algorithm = Algorithm::FixedWindow;

/// One rule for each type of state.
fn kinds(amount: u64, seconds: u64) -> Vec<Rule> {
    let bucket = Algorithm::Bucket { burst: amount, paced: false };
    let kinds = [
        bucket,
        FIXED,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 10 },
        Algorithm::SlidingWindow { sub_windows: 5 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
    ];
    // The same name: only the algorithm distinguishes their counters.
    kinds.map(|algorithm| Rule::new("r", amount, seconds, algorithm, Home::Caller(0))).into()
}

#[test]
fn a_flood_of_every_kind_stays_within_the_bound() {
    const MOST: usize = 5_000;
    let (store, _) = store(MOST);
    let kinds = kinds(10, 60);
    for key in 0..4 * MOST {
        kinds[key % kinds.len()].take(&store, &key.to_string(), 1);
        if key % 1_000 == 0 {
            // Each shard rounds its share up.
            assert!(store.stats().keys <= MOST + 256);
        }
    }
    let stats = store.stats();
    assert!(stats.keys <= MOST + 256, "{stats:?}");
    assert_eq!(stats.keys as u64 + stats.evicted + stats.uncounted, 4 * MOST as u64, "{stats:?}");
    assert!(stats.uncounted > 0, "holds are not evicted for further holds: {stats:?}");
}

/// Making room for one counter of a claim may evict another counter of the same claim. The bound holds nevertheless.
#[test]
fn a_claim_that_pushes_out_its_own_counter_stays_within_the_bound() {
    const MOST: usize = 100;
    let caller = Rule::new("caller", 1_000_000, 1, FIXED, Home::Caller(0));
    let session = Rule::new("session", 10, 3600, FIXED, Home::Caller(0));
    for new_first in [true, false] {
        let (store, _) = store(MOST);
        for number in 0..50 * MOST {
            let number = number.to_string();
            let mut charges = [session.charge(&["c", &number], 1), caller.charge(&["c"], 1)];
            if !new_first {
                charges.reverse();
            }
            settle(&store, 1, charges);
            assert!(store.stats().keys <= MOST, "{:?} after {number}", store.stats());
        }
    }
}

/// A store with several shards, where the evicted counter is chosen among a few.
#[test]
fn counters_of_long_periods_survive_a_flood_of_short_ones() {
    const MOST: usize = 8_192;
    let (store, _) = store(MOST);
    let long = Rule::new("long", 10, 86_400, FIXED, Home::Caller(0));
    let short = Rule::new("short", 10, 1, FIXED, Home::Caller(0));
    let long_keys: Vec<String> = (0..MOST / 4).map(|key| format!("long-{key}")).collect();
    for key in &long_keys {
        long.take(&store, key, 3);
    }
    for key in 0..10 * MOST {
        short.take(&store, &key.to_string(), 1);
    }
    let survivors = long_keys.iter().filter(|key| long.take(&store, key, 0).remaining == 7).count();
    assert!(survivors * 100 >= long_keys.len() * 99, "{survivors} of {}", long_keys.len());
    assert!(store.stats().evicted > 0);
}

/// Logs, holds and sub-windows are moved out of the table during a settlement, and come back complete.
#[test]
fn large_states_survive_a_flood() {
    let (store, clock) = store(2_000);
    let kinds = kinds(100, 3600);
    for step in 0..50 {
        clock.set(START.after(Span::from_secs(step)));
        for (number, kind) in kinds.iter().enumerate() {
            settle(&store, u128::from(step) * 100 + number as u128, [kind.charge(&["retained"], 1)]);
        }
    }
    let short = Rule::new("short", 10, 1, Algorithm::SlidingLog, Home::Caller(0));
    for key in 0..20_000 {
        // A peek, a refusal and a payment between the new keys.
        short.take(&store, &key.to_string(), 1);
        if key % 100 == 0 {
            for kind in &kinds {
                kind.take(&store, "retained", 0);
                assert!(!kind.take(&store, "retained", 101).admits || kind.limit.algorithm() == Algorithm::Concurrency);
            }
        }
    }
    assert!(store.stats().evicted > 0);
    for kind in &kinds {
        let left = kind.take(&store, "retained", 0).remaining;
        let expected = match kind.limit.algorithm() {
            // One unit has drained in 36 seconds since the first.
            Algorithm::Bucket { .. } => 51,
            // Claims for more than one unit take one hold, all under one id.
            Algorithm::Concurrency => 49,
            _ => 50,
        };
        assert_eq!(left, expected, "{:?}", kind.limit.algorithm());
    }
}

#[test]
fn counters_of_different_algorithms_and_periods_are_different() {
    let (store, _) = store(1_000);
    let mut rules = kinds(10, 60);
    rules.extend(kinds(10, 120).into_iter().filter(|rule| rule.limit.algorithm() != Algorithm::Concurrency));
    for (number, rule) in rules.iter().enumerate() {
        let units = if rule.limit.algorithm() == Algorithm::Concurrency { 1 } else { 1 + number as u64 % 5 };
        assert_eq!(rule.take(&store, "same", units).remaining, 10 - units, "{number}");
    }
    assert_eq!(store.stats().keys, rules.len());
    for (number, rule) in rules.iter().enumerate() {
        let units = if rule.limit.algorithm() == Algorithm::Concurrency { 1 } else { 1 + number as u64 % 5 };
        assert_eq!(rule.take(&store, "same", 0).remaining, 10 - units, "{number}");
    }
}

/// Values with the same concatenation are different values.
#[test]
fn keys_with_the_same_letters_are_different() {
    let (store, _) = store(1_000);
    for home in [Home::Own, Home::Caller(0), Home::Caller(1)] {
        let rule = Rule::new(&format!("{home:?}"), 10, 60, FIXED, home);
        for values in [["ab", "c"], ["a", "bc"], ["abc", ""], ["", "abc"], ["c", "ab"]] {
            assert_eq!(settle(&store, 1, [rule.charge(&values, 1)]).readings[0].remaining, 9, "{values:?}");
        }
        let absent = Charge {
            key: Key::new(&rule.scope, smallvec![Value::Text("abc"), Value::Absent]),
            ..rule.charge(&["abc", ""], 1)
        };
        assert_eq!(settle(&store, 1, [absent]).readings[0].remaining, 9);
    }
}

#[test]
fn a_hot_key_is_exact_while_others_flood() {
    const LIMIT: u64 = 20_000;
    let (store, _) = store(4_096);
    let hot = Rule::new("hot", LIMIT, 86_400, FIXED, Home::Caller(0));
    let cold = Rule::new("cold", 10, 1, FIXED, Home::Caller(0));
    let (admitted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut key = 0u64;
            // Enough keys to evict everything that can be evicted.
            while key < 50_000 || !done.load(Ordering::Relaxed) {
                cold.take(&store, &key.to_string(), 1);
                key += 1;
            }
        });
        let takers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..LIMIT / 2 {
                        admitted.fetch_add(u64::from(hot.take(&store, "hot", 1).admits), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
    assert_eq!(admitted.load(Ordering::Relaxed), LIMIT);
    assert_eq!(hot.take(&store, "hot", 0).remaining, 0);
    assert!(store.stats().evicted > 0);
}

/// Claims on the same partitions in opposite orders neither deadlock nor admit too much.
#[test]
fn claims_over_several_partitions_in_opposite_orders() {
    const LIMIT: u64 = 5_000;
    const THREADS: u64 = 4;
    // Several shards, so that the partitions have separate locks.
    let (store, _) = store(1 << 20);
    let rule = Rule::new("r", LIMIT, 86_400, FIXED, Home::Own);
    let callers: Vec<String> = (0..8).map(|caller| format!("caller-{caller}")).collect();
    let admitted = AtomicU64::new(0);
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, rule, callers, admitted, start) = (&store, &rule, &callers, &admitted, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..LIMIT / 2 {
                    let mut charges: Vec<Charge<'_>> = callers.iter().map(|caller| rule.charge(&[caller], 1)).collect();
                    if number % 2 == 0 {
                        charges.reverse();
                    }
                    let all = settle(store, 1, charges).readings;
                    // All or nothing: both counters have the same state, so they answer the same.
                    assert!(all.iter().all(|reading| reading.admits == all[0].admits));
                    admitted.fetch_add(u64::from(all[0].admits), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), LIMIT);
    for caller in &callers {
        assert_eq!(rule.take(&store, caller, 0).remaining, 0);
    }
}

#[test]
fn a_counter_that_is_reset_leaves_nothing_behind() {
    for several in [false, true] {
        let (store, _) = store(1_000);
        let rules = kinds(10, 60);
        let resets = |caller: &'static str| {
            rules.iter().map(move |rule| Charge { ask: Ask::Reset, ..rule.charge(&[caller], 0) }).collect::<Vec<_>>()
        };
        settle(&store, 1, resets("a"));
        assert_eq!((store.stats().keys, store.changes()), (0, 0), "nothing was there");
        for caller in ["a", "b"] {
            assert!(rules.iter().all(|rule| rule.take(&store, caller, 2).admits));
        }
        assert_eq!(store.stats().keys, 2 * rules.len());
        let before = store.changes();
        if several {
            settle(&store, 1, resets("a"));
        } else {
            resets("a").into_iter().for_each(|reset| drop(settle(&store, 1, [reset])));
        }
        assert_eq!((store.stats().keys, store.changes() - before), (rules.len(), rules.len() as u64));
        for rule in &rules {
            let left = ["a", "b"].map(|caller| rule.take(&store, caller, 0).remaining);
            let held = if rule.limit.algorithm() == Algorithm::Concurrency { 1 } else { 2 };
            assert_eq!(left, [10, 10 - held], "{:?}", rule.limit.algorithm());
        }
    }
}
