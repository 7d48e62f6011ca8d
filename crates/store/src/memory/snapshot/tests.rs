//! Manipulated snapshots with valid checksums.

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::{HashSecret, Home};
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Shortcuts, Span, Timestamp, Value,
};

use super::super::{MemoryConfig, MemoryStore};
use super::{END, EntryKind, MAGIC, SnapshotError, VERSION};
use crate::clock::ManualClock;

const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);
const CONFIG: MemoryConfig =
    MemoryConfig { max_keys: 100, rule_share_bps: 5_000, max_once: 100, max_once_per_caller: 100, grace: Span::ZERO };
const SECRET: HashSecret = HashSecret(1, 2);

/// A snapshot of one shard with these entries.
fn snapshot(shards: u32, entries: &[u8], counters: u64, once: u64) -> Vec<u8> {
    snapshot_of(VERSION, shards, entries, counters, once)
}

fn snapshot_of(version: u32, shards: u32, entries: &[u8], counters: u64, once: u64) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &version.to_le_bytes()].concat();
    let mut part = |parts: &[&[u8]]| {
        let part = parts.concat();
        bytes.extend(&part);
        bytes.extend(crc32fast::hash(&part).to_le_bytes());
    };
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    part(&[&shards.to_le_bytes(), &words(&[SECRET.0, SECRET.1, NOW.as_micros()])]);
    part(&[&0u32.to_le_bytes(), entries, &[0]]);
    part(&[&END.to_le_bytes(), &words(&[counters, once])]);
    bytes
}

/// The bytes of a counter: these words after its kind, key, staleness and scope.
fn entry(kind: EntryKind, key: u128, state: &[u8]) -> Vec<u8> {
    old_entry(kind, key, &[&words(&[5]), state].concat())
}

/// The same in versions 1 and 2, without a scope.
fn old_entry(kind: EntryKind, key: u128, state: &[u8]) -> Vec<u8> {
    let stale_at = NOW.after(Span::from_secs(1_000)).as_micros();
    let key = [((key >> 64) as u64).to_le_bytes(), (key as u64).to_le_bytes()].concat();
    [&[kind as u8][..], &key, &stale_at.to_le_bytes(), state].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn restore(bytes: &[u8]) -> Result<MemoryStore<ManualClock>, SnapshotError> {
    CONFIG.restore_with(&mut &*bytes, ManualClock::at(NOW)).map(|(store, _)| store)
}

fn with_list(before: &[u64], length: u32, list: &[u64]) -> Vec<u8> {
    [words(before), length.to_le_bytes().to_vec(), words(list)].concat()
}

#[test]
fn states_that_no_algorithm_leaves_are_refused() {
    const E: u64 = tollgate_core::EXACT;
    let long = |length: u32, each: u64| with_list(&[], length, &vec![each; length as usize * 2]);
    let rows: Vec<(EntryKind, Vec<u8>, bool)> = vec![
        (EntryKind::Bucket, words(&[E - 1, E - 1]), true),
        (EntryKind::Bucket, words(&[E, 0]), false),
        (EntryKind::Bucket, words(&[0, E]), false),
        (EntryKind::FixedWindow, words(&[E - 1, E - 1]), true),
        (EntryKind::FixedWindow, words(&[0, E]), false),
        (EntryKind::SlidingWindow, words(&[E - 1, E - 1, E - 1]), true),
        (EntryKind::SlidingWindow, words(&[0, E, 0]), false),
        (EntryKind::SubWindows, with_list(&[0], 3, &[1, 2, 3]), true),
        (EntryKind::SubWindows, with_list(&[0], 61, &[1; 61]), true),
        (EntryKind::SubWindows, with_list(&[0], 2, &[1, 2]), false),
        (EntryKind::SubWindows, with_list(&[0], 62, &[1; 62]), false),
        (EntryKind::SubWindows, with_list(&[E], 3, &[1, 2, 3]), false),
        (EntryKind::SlidingLog, with_list(&[], 2, &[1, 1, 2, 1]), true),
        (EntryKind::SlidingLog, with_list(&[], 2, &[1, 1, 1, 1]), false),
        (EntryKind::SlidingLog, with_list(&[], 2, &[2, 1, 1, 1]), false),
        (EntryKind::SlidingLog, with_list(&[], 1, &[1, 0]), false),
        (EntryKind::SlidingLog, with_list(&[], 2, &[1, E - 1, 2, 1]), false),
        (EntryKind::SlidingLog, with_list(&[], 3, &[1, u64::MAX, 2, u64::MAX, 3, 5]), false),
        (EntryKind::SlidingLog, long(10_001, 1), false),
        (EntryKind::SlidingLog, with_list(&[], u32::MAX, &[]), false),
        (EntryKind::Holds, with_list(&[0], 2, &[1, 0, 5, 2, 0, 5]), true),
        (EntryKind::Holds, with_list(&[0], 2, &[1, 0, 5, 2, 0, 4]), false),
        (EntryKind::Holds, with_list(&[0], 1, &[1, 0, 2 * E]), false),
        (EntryKind::Holds, with_list(&[E], 0, &[]), false),
        (EntryKind::Holds, with_list(&[0], 10_001, &[0; 30_003]), false),
    ];
    for (number, (kind, state, sound)) in rows.into_iter().enumerate() {
        let restored = restore(&snapshot(1, &entry(kind, 1, &state), 1, 0));
        match restored {
            Ok(_) => assert!(sound, "row {number}: {kind:?}"),
            Err(SnapshotError::Damaged { .. }) => assert!(!sound, "row {number}: {kind:?}"),
            Err(other) => panic!("row {number}: {other}"),
        }
    }
}

#[test]
fn records_that_no_store_keeps_are_refused() {
    let with_verdict = |made: u64, passed: u8, readings: u32, reading: &[u8]| {
        let body = [&words(&[made, 0, 0])[..], &[passed], &readings.to_le_bytes(), reading].concat();
        restore(&snapshot(1, &entry(EntryKind::Once, 1, &body), 0, 1)).is_ok()
    };
    let record = |made: u64, readings: u32, reading: &[u8]| with_verdict(made, 1, readings, reading);
    let reading = |head: [u8; 3], wait: u64| [&head[..], &words(&[1, 2, wait, 4, 5])].concat();
    assert!(record(1, 1, &reading([1, 0, 0], 0)));
    assert!(record(1, 1, &reading([0, 1, 4], 1)));
    assert!(record(1, 1, &reading([0, 2, 0], 0)));
    assert!(!record(tollgate_core::EXACT, 1, &reading([1, 0, 0], 0)));
    for (head, wait) in [([2, 0, 0], 0), ([1, 3, 0], 0), ([1, 0, 7], 0), ([1, 0, 0], 1), ([1, 1, 0], 0), ([1, 2, 0], 1)]
    {
        assert!(!record(1, 1, &reading(head, wait)), "{head:?} {wait}");
    }
    assert!(record(1, 512, &reading([1, 0, 0], 0).repeat(512)));
    assert!(!record(1, 513, &reading([1, 0, 0], 0).repeat(513)));
    assert!(record(1, 0, &[]) && with_verdict(1, 0, 0, &[]) && !with_verdict(1, 2, 0, &[]));
}

#[test]
fn of_an_older_version_the_counters_come_back_and_the_records_do_not() {
    let bucket = old_entry(EntryKind::Bucket, 1, &words(&[5, NOW.as_micros()]));
    let reading = [&[1, 0, 0][..], &words(&[1, 2, 0, 4, 5])].concat();
    let record = old_entry(EntryKind::Once, 2, &[&words(&[1, 7])[..], &1u32.to_le_bytes(), &reading].concat());
    let bytes = snapshot_of(1, 1, &[bucket, record].concat(), 1, 1);
    let (store, report) = CONFIG.restore_with(&mut &*bytes, ManualClock::at(NOW)).unwrap();
    assert_eq!((store.stats().keys, store.stats().once, report.stale), (1, 0, 1));
    assert_eq!((report.snapshot.counters, report.snapshot.once), (1, 1));
}

#[test]
fn of_the_previous_version_everything_comes_back() {
    let rules = rules();
    let (scope, limit) = rules.iter().find(|(_, limit)| limit.amount() > 1).unwrap();
    let key = |caller| Key::new(scope, smallvec![Value::Text(caller)]);
    let print = |caller| key(caller).hash(SECRET, key(caller).partition(SECRET));
    let state = words(&[limit.quota() * limit.period().ticks(), NOW.as_micros()]);
    let bucket = old_entry(EntryKind::Bucket, print("caller"), &state);
    let reading = [&[1, 0, 0][..], &words(&[1, 2, 0, 4, 5])].concat();
    let record = [&words(&[1, 7, 9])[..], &[1], &1u32.to_le_bytes(), &reading].concat();
    let record = old_entry(EntryKind::Once, print("name"), &record);
    let store = restore(&snapshot_of(2, 1, &[bucket, record].concat(), 1, 1)).unwrap();
    assert_eq!((store.stats().keys, store.stats().once), (1, 1));
    let settle = |caller, once| {
        let (ask, mode, on_failure) = (Ask::Exactly, Mode::Enforce, OnFailure::Deny);
        let charge =
            Charge { key: key(caller), limit, ask, units: 1, mode, on_failure, shortcuts: Shortcuts::Refusals };
        let mut settlement = Settlement::default();
        let claim = Claim { id: ClaimId(1), charges: smallvec![charge], once, timeout: None };
        store.settle_now(&claim, &mut settlement);
        settlement
    };
    assert!(!settle("caller", None).readings[0].admits, "its bucket is full");
    let once = Once { key: key("name"), body: 7, terms: 0, keep: Span::from_secs(1) };
    assert_eq!(settle("caller", Some(once)).replay, Replay::Again { terms: 9, passed: true });
}

#[test]
fn numbers_of_shards_that_no_store_has_are_refused() {
    assert!(restore(&snapshot(1, &[], 0, 0)).is_ok());
    for shards in [0, 3, 257, 512, u32::MAX] {
        assert!(matches!(restore(&snapshot(shards, &[], 0, 0)), Err(SnapshotError::Damaged { .. })), "{shards}");
    }
    assert!(restore(&snapshot(2, &[], 0, 0)).is_err(), "a block is missing");
    assert!(restore(&snapshot(1, &[], 1, 0)).is_err(), "a counter is missing");
    assert!(restore(&snapshot(1, &[], 0, 1)).is_err(), "a record is missing");
}

/// Rules of every algorithm, with extreme periods and amounts.
fn rules() -> Vec<(Scope, Limit)> {
    let mut rules = Vec::new();
    for period in [Span::from_micros(1_000), Span::from_secs(60), Span::from_secs(365 * 86_400)] {
        let period = Period::fixed(period).unwrap();
        for amount in [0, 1, period.max_count()] {
            let algorithms = [
                Algorithm::Bucket { burst: amount, paced: true },
                Algorithm::FixedWindow,
                Algorithm::SlidingWindow { sub_windows: 1 },
                Algorithm::SlidingWindow { sub_windows: 5 },
                Algorithm::SlidingLog,
                Algorithm::Concurrency,
            ];
            for algorithm in algorithms {
                let amount = match algorithm {
                    Algorithm::SlidingLog | Algorithm::Concurrency => amount.min(Limit::MAX_ENTRIES),
                    _ => amount,
                };
                let limit = Limit::new(amount, period.clone(), algorithm).unwrap();
                rules.push((Scope::new("d", "r", algorithm, &period, Home::Caller(0)), limit));
            }
        }
    }
    rules
}

/// A number near some bound.
fn edge() -> impl Strategy<Value = u64> {
    let now = NOW.as_micros();
    let bases = vec![0, 1, now, now / 1_000, now / 1_000_000, 1 << 53, 1 << 54, u64::MAX];
    (prop::sample::select(bases), 0u64..3, any::<bool>())
        .prop_map(|(base, off, up)| if up { base.saturating_add(off) } else { base.saturating_sub(off) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Claims are answered, whatever the restored state and whatever the limit.
    #[test]
    fn a_state_that_came_back_is_safe_to_settle_on(
        rule in 0usize..54,
        numbers in prop::collection::vec(edge(), 6),
        asks in prop::collection::vec((0u8..6, edge()), 1..6),
    ) {
        let rules = rules();
        let (scope, limit) = &rules[rule];
        let key = Key::new(scope, smallvec![Value::Text("caller")]);
        let print = key.hash(SECRET, key.partition(SECRET));
        let (kind, state) = match limit.algorithm() {
            Algorithm::Bucket { .. } => (EntryKind::Bucket, words(&numbers[..2])),
            Algorithm::FixedWindow => (EntryKind::FixedWindow, words(&numbers[..2])),
            Algorithm::SlidingWindow { sub_windows: 1 } => (EntryKind::SlidingWindow, words(&numbers[..3])),
            Algorithm::SlidingWindow { .. } => (EntryKind::SubWindows, with_list(&[numbers[0]], 6, &numbers)),
            Algorithm::SlidingLog => (EntryKind::SlidingLog, with_list(&[], 3, &numbers)),
            Algorithm::Concurrency => (EntryKind::Holds, with_list(&[numbers[0]], 1, &numbers[1..4])),
        };
        if let Ok(store) = restore(&snapshot(1, &entry(kind, print, &state), 1, 0)) {
            prop_assert_eq!(store.stats().keys, 1);
            for (ask, units) in asks {
                let ask = match ask {
                    0 => Ask::Exactly,
                    1 => Ask::UpTo,
                    2 => Ask::Regardless,
                    3 => Ask::Reset,
                    4 => Ask::Credit,
                    _ => Ask::Return { taken_at: NOW },
                };
                let (mode, on_failure) = (Mode::Enforce, OnFailure::Deny);
                let charge = Charge { key: key.clone(), limit, ask, units, mode, on_failure, shortcuts: Shortcuts::Refusals };
                let mut settlement = Settlement::default();
                store.settle_now(&Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None }, &mut settlement);
                prop_assert_eq!(settlement.readings.len(), 1);
            }
        }
    }

    #[test]
    fn entries_of_random_bytes_do_no_harm(entries in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..9) {
        let entries = [&[kind][..], &entries].concat();
        let _ = restore(&snapshot(1, &entries, 1, 0));
    }
}
