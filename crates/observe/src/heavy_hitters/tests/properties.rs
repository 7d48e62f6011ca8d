//! Whatever comes, in whichever order: what a list says of each key is true, and its floor is where it may be.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::summary::{DECISIONS, Floor, KeyStats, REFUSALS, Retention};
use super::super::*;

/// One decision: in which minute, of which key, refused or not, and how full the counter was.
type Event = (usize, u8, bool, u32);

const MINUTES: usize = 4;
const SHARDS: u8 = 3;

/// A list as a shard makes it, with room for few.
fn listed<'e>(events: impl Iterator<Item = &'e Event>, keep: Retention) -> Summary {
    let (mut summary, upper_bound) = (Summary::default(), 3 * keep.counted + keep.used + 2);
    for (_, key, refused, used) in events {
        summary.totals[DECISIONS] += 1;
        summary.totals[REFUSALS] += u64::from(*refused);
        let hash = hash(*key);
        let at = summary.keys.iter().position(|(known, _)| *known == hash).unwrap_or_else(|| {
            if summary.keys.len() >= upper_bound {
                summary.prune(keep);
            }
            let name = KeyName::new("d", "r", &key.to_string(), None);
            summary.keys.push((hash, KeyStats::new(name, &summary.floor)));
            summary.keys.len() - 1
        });
        let stats = &mut summary.keys[at].1;
        stats.counted[DECISIONS] += 1;
        stats.counted[REFUSALS] += u64::from(*refused);
        stats.used = stats.used.max(Some(*used));
    }
    summary
}

fn hash(key: u8) -> u128 {
    u128::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// What must hold of a list of these events.
fn is_true(summary: &Summary, events: &[Event], keep: Retention) -> Result<(), TestCaseError> {
    let mut truth: HashMap<u128, ([u64; 2], u32)> = HashMap::new();
    for (_, key, refused, used) in events {
        let (counts, fullest) = truth.entry(hash(*key)).or_default();
        *counts = [counts[0] + 1, counts[1] + u64::from(*refused)];
        *fullest = (*used).max(*fullest);
    }
    for measure in [DECISIONS, REFUSALS] {
        let (total, floor) = (summary.totals[measure], summary.floor.missed[measure]);
        prop_assert_eq!(total, truth.values().map(|(counts, _)| counts[measure]).sum::<u64>());
        prop_assert!(floor <= total / (keep.counted as u64 + 1), "{} of {}", floor, total);
        for (hash, (counts, _)) in &truth {
            match summary.keys.iter().find(|(known, _)| known == hash) {
                Some((_, stats)) => prop_assert!(
                    stats.counted[measure] <= counts[measure] && counts[measure] <= stats.upper_bound(measure),
                    "{:?} is {:?}",
                    counts,
                    stats
                ),
                None => prop_assert!(counts[measure] <= floor, "{:?} is below {}", counts, floor),
            }
        }
    }
    for (hash, (_, fullest)) in &truth {
        let Floor { used: (floor, _), .. } = summary.floor;
        match summary.keys.iter().find(|(known, _)| known == hash) {
            Some((_, stats)) if stats.used >= Some(floor) => prop_assert_eq!(stats.used, Some(*fullest)),
            _ => prop_assert!(*fullest <= floor),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn lists_are_true_however_they_are_put_together(
        events in prop::collection::vec((0..MINUTES, prop_oneof![0..4u8, 0..60u8], prop::bool::weighted(0.3), 0..40u32), 0..500),
        counted in 1..5usize,
        used in 1..4usize,
    ) {
        let keep = Retention { counted, used };
        let minutes: Vec<_> = (0..MINUTES).map(|minute| {
            let shard = |shard| events.iter().filter(move |event| event.0 == minute && event.1 % SHARDS == shard);
            let mut all = Summary::default();
            for number in 0..SHARDS {
                all = Summary::merge([&all, &listed(shard(number), keep)]);
                all.prune(keep);
            }
            all
        }).collect();
        for (minute, summary) in minutes.iter().enumerate() {
            let of_it: Vec<_> = events.iter().copied().filter(|event| event.0 == minute).collect();
            is_true(summary, &of_it, keep)?;
            prop_assert!(summary.keys.len() <= 2 * counted + used);
        }
        // All at once, and one after the other.
        is_true(&Summary::merge(&minutes), &events, keep)?;
        let mut folded = Summary::default();
        for minute in &minutes {
            folded = Summary::merge([&folded, minute]);
            folded.prune(keep);
        }
        is_true(&folded, &events, keep)?;
        // As other servers receive it.
        let received = Summary::from_keys(folded.totals(), folded.floors(), folded.keys());
        prop_assert_eq!(received.top(RankBy::Decisions, KeyFilter::default(), 99), folded.top(RankBy::Decisions, KeyFilter::default(), 99));
        is_true(&folded.limited_to(1), &events, Retention { counted: 1, used: 1 })?;
    }
}
