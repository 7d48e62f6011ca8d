//! Snapshots of the in-memory store: the content is restored, and losses are reported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Reading, Replay, Scope,
    Settlement, Shortcuts, Span, Timestamp, Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::conformance::steps::{START, names, rules, settle, steps};
use tollgate_store::{Clock, ManualClock, MemoryConfig, MemoryStore, SnapshotError, Store};

const CONFIG: MemoryConfig = MemoryConfig {
    max_keys: 5_000,
    rule_share_bps: 5_000,
    max_once: 5_000,
    max_once_per_caller: 5_000,
    grace: Span::ZERO,
};
const HOUR: u64 = 3_600;

fn written<C: Clock>(store: &MemoryStore<C>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let stats = store.snapshot(&mut bytes).unwrap();
    assert_eq!(stats.bytes, bytes.len() as u64);
    bytes
}

fn restored(config: MemoryConfig, bytes: &[u8], now: Timestamp) -> MemoryStore<ManualClock> {
    config.restore_with(&mut &*bytes, ManualClock::at(now)).unwrap().0
}

fn refused(bytes: &[u8]) -> SnapshotError {
    match CONFIG.restore_with(&mut &*bytes, ManualClock::at(START)) {
        Ok((_, restored)) => panic!("{} bytes became a store: {restored:?}", bytes.len()),
        Err(error) => error,
    }
}

/// A rule whose counters live for at least an hour after their last change.
struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Rule {
    fn new(algorithm: Algorithm) -> Rule {
        let limit = Limit::new(100, Period::fixed(Span::from_secs(HOUR)).unwrap(), algorithm).unwrap();
        Rule { scope: Scope::new("d", "r", algorithm, limit.period(), Home::Caller(0)), limit }
    }

    /// One rule for each type of state.
    fn kinds() -> Vec<Rule> {
        let algorithms = [
            Algorithm::Bucket { burst: 100, paced: false },
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow { sub_windows: 1 },
            Algorithm::SlidingWindow { sub_windows: 10 },
            Algorithm::SlidingLog,
            Algorithm::Concurrency,
        ];
        algorithms.map(Rule::new).into()
    }

    fn settle(&self, store: &impl Store, caller: &str, units: u64, once: Option<&str>) -> Settlement {
        let key = |value| Key::new(&self.scope, smallvec![Value::Text(value)]);
        let charge = Charge {
            key: key(caller),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        let once = once.map(|name| Once { key: key(name), body: 7, terms: 9, keep: Span::from_secs(60) });
        block_on(store.settle(&Claim { id: ClaimId(1), charges: smallvec![charge], once, timeout: None }))
    }

    fn take(&self, store: &impl Store, caller: &str, units: u64) -> Reading {
        self.settle(store, caller, units, None).readings[0]
    }
}

/// A store with a counter of each type and a record.
fn one_of_each() -> MemoryStore<ManualClock> {
    let store = MemoryConfig { max_keys: 10, ..CONFIG }.build_with(ManualClock::at(START));
    for rule in Rule::kinds() {
        assert!(rule.take(&store, "caller", 3).admits);
    }
    Rule::new(Algorithm::FixedWindow).settle(&store, "caller", 1, Some("name"));
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_restored_store_goes_on_like_the_one_that_was_written(
        amount in 0u64..8,
        before in prop::collection::vec(steps(), 1..40),
        away in prop_oneof![Just(0u64), 0u64..2_000_000, 0u64..25_000_000],
        after in prop::collection::vec(steps(), 1..40),
    ) {
        let rules = rules(amount);
        let names = names(&rules);
        let clock = ManualClock::at(START);
        let original = CONFIG.build_with(clock.clone());
        let mut moments = vec![START];
        for step in &before {
            moments.push(moments[moments.len() - 1].after(Span::from_micros(step.moves)));
            clock.set(moments[moments.len() - 1]);
            settle(&original, &rules, &names, step, &moments);
        }
        let bytes = written(&original);
        clock.set(clock.now().after(Span::from_micros(away)));
        let (restored, report) = CONFIG.restore_with(&mut &*bytes, clock.clone()).unwrap();
        prop_assert_eq!(report.written_at, moments[moments.len() - 1]);
        prop_assert_eq!(report.dropped, 0);
        prop_assert!(away > 0 || report.stale == 0);
        moments.push(clock.now());
        for step in &after {
            moments.push(moments[moments.len() - 1].after(Span::from_micros(step.moves)));
            clock.set(moments[moments.len() - 1]);
            let expected = settle(&original, &rules, &names, step, &moments);
            let actual = settle(&restored, &rules, &names, step, &moments);
            prop_assert_eq!(actual, expected, "{:?}", step);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2_000), genuine in 0usize..100) {
        refused(&bytes);
        // Like damage after a valid beginning.
        let mut bytes = bytes;
        let whole = written(&one_of_each());
        bytes.splice(..0, whole[..genuine.min(whole.len())].iter().copied());
        refused(&bytes);
    }
}

#[test]
fn every_flipped_byte_is_found() {
    let bytes = written(&one_of_each());
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            refused(&damaged);
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let bytes = written(&one_of_each());
    for length in 0..bytes.len() {
        match refused(&bytes[..length]) {
            SnapshotError::Truncated { at } => assert_eq!(at, length as u64),
            other => panic!("{length} of {} bytes: {other}", bytes.len()),
        }
    }
}

#[test]
fn errors_are_reported() {
    let bytes = written(&one_of_each());
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        refused(&bytes).to_string()
    };
    assert_eq!(with(0, b'X'), "it is not a snapshot of counters");
    assert_eq!(with(8, 9), "it has version 9 of the format, and this program supports versions up to 3");
    assert_eq!(with(20, 9), "it is damaged: the bytes before byte 44 are invalid");
    assert_eq!(refused(&bytes[..30]).to_string(), "it is truncated: it ends after 30 bytes");
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(refused(&longer), SnapshotError::Damaged { at } if at == bytes.len() as u64));
}

#[test]
fn what_is_over_by_now_is_left_out() {
    let bytes = written(&one_of_each());
    let later = START.after(Span::from_secs(3 * HOUR));
    let (store, report) = CONFIG.restore_with(&mut &*bytes, ManualClock::at(later)).unwrap();
    assert_eq!((report.snapshot.counters, report.snapshot.once, report.stale), (6, 1, 7));
    assert_eq!(store.stats().keys, 0);

    let grace = MemoryConfig { grace: Span::from_secs(10 * HOUR), ..CONFIG };
    let (store, report) = grace.restore_with(&mut &*bytes, ManualClock::at(later)).unwrap();
    assert_eq!((report.stale, store.stats().keys), (1, 6), "for a clock that is set back again");
}

#[test]
fn records_of_claims_settled_once_come_back() {
    let rule = Rule::new(Algorithm::FixedWindow);
    let first = one_of_each();
    let store = restored(CONFIG, &written(&first), START.after(Span::from_secs(59)));
    let replayed = rule.settle(&store, "caller", 1, Some("name"));
    assert_eq!((replayed.replay, replayed.at), (Replay::Again { terms: 9, passed: true }, START));
    assert_eq!(replayed.readings[0].remaining, 96);
    let store = restored(CONFIG, &written(&first), START.after(Span::from_secs(60)));
    assert_eq!(rule.settle(&store, "caller", 1, Some("name")).replay, Replay::First);
}

#[test]
fn a_smaller_store_keeps_the_counters_with_the_least_room() {
    let rule = Rule::new(Algorithm::Bucket { burst: 100, paced: false });
    let store = MemoryConfig { max_keys: 1_000, max_once: 100, ..CONFIG }.build_with(ManualClock::at(START));
    for caller in 0..100u64 {
        rule.settle(&store, &caller.to_string(), caller + 1, Some(&caller.to_string()));
    }
    let small = MemoryConfig { max_keys: 60, max_once: 40, ..CONFIG };
    let (store, report) = small.restore_with(&mut &*written(&store), ManualClock::at(START)).unwrap();
    let stats = store.stats();
    assert_eq!((stats.keys, stats.once, report.dropped), (60, 40, 100), "{stats:?}");
    for caller in 40..100u64 {
        assert_eq!(rule.take(&store, &caller.to_string(), 0).remaining, 99 - caller, "caller {caller}");
    }
    assert_eq!(
        rule.settle(&store, "99", 100, Some("99")).replay,
        Replay::Again { terms: 9, passed: true },
        "the newest records stay"
    );
    assert_eq!(rule.settle(&store, "0", 0, Some("0")).replay, Replay::First, "the oldest go");
}

#[test]
fn long_logs_and_holds_come_back_whole() {
    let period = Period::fixed(Span::from_secs(HOUR)).unwrap();
    let most = Limit::MAX_ENTRIES;
    let clock = ManualClock::at(START);
    let store = CONFIG.build_with(clock.clone());
    let rules = [Algorithm::SlidingLog, Algorithm::Concurrency].map(|algorithm| {
        let limit = Limit::new(most, period.clone(), algorithm).unwrap();
        (Scope::new("d", "r", algorithm, limit.period(), Home::Caller(0)), limit)
    });
    let take = |store: &MemoryStore<ManualClock>, id: u64, units: u64| {
        let charge = |(scope, limit)| Charge {
            key: Key::new(scope, smallvec![Value::Text("caller")]),
            limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        let charges = rules.iter().map(|(scope, limit)| charge((scope, limit))).collect();
        block_on(store.settle(&Claim { id: ClaimId(u128::from(id) << 60), charges, once: None, timeout: None }))
    };
    for id in 0..most {
        clock.set(START.after(Span::from_micros(id * 1_000)));
        take(&store, id, 1);
    }
    let bytes = written(&store);
    assert!(bytes.len() as u64 > most * (16 + 24), "an entry for each: {}", bytes.len());
    let restored = restored(CONFIG, &bytes, clock.now());
    let (expected, actual) = (take(&store, most, 1), take(&restored, most, 1));
    assert!(!actual.readings[0].admits && !actual.readings[1].admits);
    assert_eq!(actual, expected);
}

#[test]
fn snapshots_are_taken_while_claims_are_settled() {
    const THREADS: usize = 3;
    let store = MemoryConfig { max_keys: 20_000, ..CONFIG }.build_with(ManualClock::at(START));
    let kinds = Rule::kinds();
    let done = AtomicBool::new(false);
    let last = thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, kinds, done) = (&store, &kinds, &done);
            scope.spawn(move || {
                for number in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let caller = ((number * THREADS + thread) % 3_000).to_string();
                    kinds[number % kinds.len()].settle(store, &caller, 1, (number % 7 == 0).then_some(&caller));
                }
            });
        }
        let mut last = Vec::new();
        while store.stats().keys < 1_000 {
            thread::yield_now();
        }
        for _ in 0..50 {
            last = written(&store);
            let (restored, report) = CONFIG.restore_with(&mut &*last, ManualClock::at(START)).unwrap();
            assert_eq!(restored.stats().keys as u64 + report.dropped, report.snapshot.counters);
        }
        done.store(true, Ordering::Relaxed);
        last
    });
    assert!(last.len() > 1_000 * 41, "{}", last.len());
    let quiet = written(&store);
    assert_eq!(
        written(&restored(MemoryConfig { max_keys: 20_000, ..CONFIG }, &quiet, START)).len(),
        quiet.len(),
        "what is restored is written again as much"
    );
}

#[test]
fn changes_are_counted_and_looks_are_not() {
    let rule = Rule::new(Algorithm::FixedWindow);
    let store = one_of_each();
    let before = store.changes();
    rule.take(&store, "caller", 0);
    rule.take(&store, "caller", 1_000);
    written(&store);
    assert_eq!(store.changes(), before);
    rule.take(&store, "caller", 1);
    assert_eq!(store.changes(), before + 1);
}

/// Large rather than slow: the time for a million counters is printed, not asserted.
#[test]
fn slow_a_million_counters_come_back() {
    const COUNTERS: u64 = 1_000_000;
    let rule = Rule::new(Algorithm::Bucket { burst: 100, paced: false });
    let config = MemoryConfig { max_keys: 2 * COUNTERS as usize, max_once: 1, ..CONFIG };
    let store = config.build_with(ManualClock::at(START));
    for caller in 0..COUNTERS {
        rule.take(&store, &caller.to_string(), 1 + caller % 100);
    }
    let clock = tollgate_store::SystemClock::default();
    let begun = clock.now();
    let bytes = written(&store);
    let wrote = clock.now();
    let (restored, report) = config.restore_with(&mut &*bytes, ManualClock::at(START)).unwrap();
    let read = clock.now();
    println!(
        "{} bytes a counter; written in {} ms, read in {} ms",
        bytes.len() as u64 / COUNTERS,
        wrote.since(begun).as_micros() / 1_000,
        read.since(wrote).as_micros() / 1_000
    );
    assert_eq!((report.snapshot.counters, report.dropped, report.stale), (COUNTERS, 0, 0));
    assert!(bytes.len() as u64 <= 50 * COUNTERS);
    for caller in (0..COUNTERS).step_by(997) {
        assert_eq!(rule.take(&restored, &caller.to_string(), 0).remaining, 99 - caller % 100);
    }
}
