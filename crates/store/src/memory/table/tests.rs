//! The table compared with a map.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate_core::Timestamp;

use super::super::hash::Fingerprint;
use super::CounterTable;

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
    Fingerprint { high: key, low }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..400, any::<u64>(), 1u64..100).prop_map(|(key, state, stale_at)| Step::Put { key, state, stale_at }),
        2 => (0u64..400).prop_map(|key| Step::Remove { key }),
        1 => (0usize..64, 0u64..100).prop_map(|(steps, now)| Step::Sweep { steps, now }),
    ]
}

fn check(table: &mut CounterTable<u64>, model: &HashMap<u64, (u64, u64)>) -> Result<(), TestCaseError> {
    prop_assert_eq!(table.len(), model.len());
    for key in 0..400 {
        let found = table.find(fingerprint(key)).map(|place| {
            let (state, stale_at) = table.at(place);
            (*state, stale_at.as_micros())
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
        let mut model: HashMap<u64, (u64, u64)> = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put { key, state, stale_at } => {
                    // The current index, or a wrong guess.
                    let guess = if number % 2 == 0 { table.find(fingerprint(key)) } else { Some(number as u32) };
                    let is_new = table.put(fingerprint(key), guess, state, Timestamp::from_micros(stale_at));
                    prop_assert_eq!(is_new, model.insert(key, (state, stale_at)).is_none());
                }
                Step::Remove { key } => {
                    table.remove(fingerprint(key));
                    model.remove(&key);
                }
                Step::Sweep { steps, now } => {
                    let swept = table.sweep(steps, Timestamp::from_micros(now));
                    if let Some((stale_at, key)) = swept.soonest {
                        prop_assert!(stale_at.as_micros() > now);
                        prop_assert_eq!(model[&key.high].1, stale_at.as_micros());
                    }
                    let before = model.len();
                    model.retain(|key, (_, stale_at)| *stale_at > now || table.find(fingerprint(*key)).is_some());
                    prop_assert_eq!(swept.stale as usize, before - model.len());
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
            table.put(fingerprint(key), None, 0, Timestamp::from_micros(*stale_at));
        }
        let live = stale_at.iter().filter(|stale_at| **stale_at > now).count();
        // A removal counts as a step too, and a slot that wraps around may move behind the sweep.
        let swept: u64 = (0..3).map(|_| table.sweep(usize::MAX, Timestamp::from_micros(now)).stale).sum();
        prop_assert_eq!((table.len(), swept as usize), (live, stale_at.len() - live));
        let soonest = table.sweep(usize::MAX, Timestamp::from_micros(now)).soonest.map(|(stale_at, _)| stale_at.as_micros());
        prop_assert_eq!(soonest, stale_at.iter().copied().filter(|stale_at| *stale_at > now).min());
    }
}

#[test]
fn an_empty_table_has_nothing() {
    let mut table: CounterTable<u64> = CounterTable::default();
    assert_eq!(table.find(fingerprint(1)), None);
    table.remove(fingerprint(1));
    assert_eq!(table.sweep(10, Timestamp::from_micros(5)), super::SweepResult::default());
}

/// Tables grow by an eighth, so this is the maximum of empty slots.
#[test]
fn a_table_grows_little_by_little() {
    let mut table: CounterTable<u64> = CounterTable::default();
    for key in 0..100_000u64 {
        let spread = Fingerprint { high: key, low: key.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        table.put(spread, None, key, Timestamp::from_micros(1));
        // A search ends at an empty slot, so there must be one.
        assert!(table.len() < table.slots.len());
        if table.len() >= 64 {
            let (len, slots) = (table.len(), table.slots.len());
            assert!(len * 5 <= slots * 4 && slots * 2 <= len * 3, "{len} of {slots}");
        }
    }
}
