//! The table compared with a map.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate_core::Timestamp;

use super::super::hash::Fingerprint;
use super::super::shares::ScopeNumber;
use super::super::worth::Worth;
use super::{CounterTable, SlotTag, SweptCounter};

#[derive(Clone, Debug)]
enum Step {
    Put { key: u64, state: u64, stale_at: u64 },
    Remove { key: u64 },
    Sweep { steps: usize, now: u64 },
}

/// The home of a key depends on the high bits of `low`. These keys share few homes, and the last ones wrap around the
/// end.
fn fingerprint(key: u64) -> Fingerprint {
    let low = match key % 3 {
        0 => u64::MAX - key,
        1 => key,
        _ => key << 55,
    };
    Fingerprint::new(key << Fingerprint::FREE_BITS, low)
}

/// Any tag that depends on the state.
fn tag(state: u64) -> SlotTag {
    SlotTag { scope: ScopeNumber((state >> 8) as u16), worth: Worth::from_bits(state as u8) }
}

fn sweep(table: &mut CounterTable<u64>, steps: usize, now: u64) -> Vec<SweptCounter> {
    let mut swept = Vec::new();
    table.sweep(steps, Timestamp::from_micros(now), |counter| swept.push(counter));
    swept
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..400, any::<u64>(), 1u64..100).prop_map(|(key, state, stale_at)| Step::Put { key, state, stale_at }),
        2 => (0u64..400).prop_map(|key| Step::Remove { key }),
        1 => (0usize..64, 0u64..100).prop_map(|(steps, now)| Step::Sweep { steps, now }),
    ]
}

/// The model has state, staleness and tag of each key.
fn check(table: &mut CounterTable<u64>, model: &HashMap<u64, (u64, u64, SlotTag)>) -> Result<(), TestCaseError> {
    prop_assert_eq!(table.len(), model.len());
    for key in 0..400 {
        let found = table.find(fingerprint(key)).map(|place| {
            let (state, stale_at) = table.peek(place);
            (*state, stale_at.as_micros(), table.tag(place))
        });
        prop_assert_eq!(found, model.get(&key).copied(), "key {}", key);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_holds_what_a_map_holds(steps in prop::collection::vec(step(), 1..600)) {
        let mut table: CounterTable<u64> = CounterTable::default();
        let mut model: HashMap<u64, (u64, u64, SlotTag)> = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put { key, state, stale_at } => {
                    // The current index, or a wrong guess.
                    let guess = if number % 2 == 0 { table.find(fingerprint(key)) } else { Some(number as u32) };
                    let until = Timestamp::from_micros(stale_at);
                    let before = table.put(fingerprint(key), guess, state, until, tag(state));
                    prop_assert_eq!(before, model.get(&key).map(|(.., tag)| *tag));
                    let scope = before.unwrap_or(tag(state)).scope;
                    model.insert(key, (state, stale_at, SlotTag { scope, ..tag(state) }));
                }
                Step::Remove { key } => {
                    let removed = table.remove(fingerprint(key));
                    prop_assert_eq!(removed, model.remove(&key).map(|(.., tag)| tag));
                }
                Step::Sweep { steps, now } => {
                    for SweptCounter { key, tag, stale_at, removed } in sweep(&mut table, steps, now) {
                        let key = key.high >> Fingerprint::FREE_BITS;
                        let (_, until, expected) = model[&key];
                        prop_assert_eq!((tag, stale_at.as_micros(), removed), (expected, until, until <= now));
                        if removed {
                            model.remove(&key);
                        }
                    }
                }
            }
            if number % 16 == 0 {
                check(&mut table, &model)?;
            }
        }
        check(&mut table, &model)?;
    }

    /// A full round finds everything that is stale, and nothing else.
    #[test]
    fn sweeping_round_leaves_what_is_live(stale_at in prop::collection::vec(1u64..100, 0..400), now in 0u64..100) {
        let mut table: CounterTable<u64> = CounterTable::default();
        for (key, stale_at) in (0..).zip(&stale_at) {
            table.put(fingerprint(key), None, 0, Timestamp::from_micros(*stale_at), tag(0));
        }
        let live = stale_at.iter().filter(|stale_at| **stale_at > now).count();
        // A removal counts as a step too, and a slot that wraps around may move behind the sweep.
        let removed = |table: &mut _| sweep(table, usize::MAX, now).iter().filter(|swept| swept.removed).count();
        let swept: usize = (0..3).map(|_| removed(&mut table)).sum();
        prop_assert_eq!((table.len(), swept), (live, stale_at.len() - live));
        prop_assert_eq!(sweep(&mut table, usize::MAX, now).len(), live);
    }
}

#[test]
fn an_empty_table_has_nothing() {
    let mut table: CounterTable<u64> = CounterTable::default();
    assert_eq!(table.find(fingerprint(1)), None);
    assert_eq!(table.remove(fingerprint(1)), None);
    assert!(sweep(&mut table, 10, 5).is_empty());
}

/// Tables grow by an eighth, so this is the maximum of empty slots.
#[test]
fn a_table_grows_little_by_little() {
    let mut table: CounterTable<u64> = CounterTable::default();
    for key in 0..100_000u64 {
        let spread = Fingerprint::new(0, key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        table.put(spread, None, key, Timestamp::from_micros(1), tag(key));
        // A search ends at an empty slot, so there must be one.
        assert!(table.len() < table.slots.len());
        if table.len() >= 64 {
            let (len, slots) = (table.len(), table.slots.len());
            assert!(len * 5 <= slots * 4 && slots * 2 <= len * 3, "{len} of {slots}");
        }
    }
}
