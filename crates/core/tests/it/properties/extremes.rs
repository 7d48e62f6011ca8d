//! No operation overflows or leaves the exact integers. The tests are built with overflow checks, so a sum that wraps
//! panics.

use proptest::prelude::*;
use tollgate_core::algorithm::TickCharge;
use tollgate_core::{Algorithm, Ask, ClaimId, CounterState, EXACT, Limit, Mode, Period, Span, Timestamp, Wait};

use super::world::{Asks, World, algorithms, cases, modes};

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..20,
        any::<u64>(),
        Just(u64::MAX),
        Just(EXACT),
        Just(EXACT - 1),
        (0u32..64).prop_map(|bits| 1 << bits),
        (0u32..64).prop_map(|bits| (1 << bits) - 1),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => Just(Ask::Exactly),
        1 => Just(Ask::UpTo),
        3 => Just(Ask::Regardless),
        2 => numbers().prop_map(|micros| Ask::Return { taken_at: Timestamp::from_micros(micros) }),
        1 => Just(Ask::Reset),
        1 => Just(Ask::Credit),
    ]
}

/// The largest limits that are allowed, and others.
fn limits() -> impl Strategy<Value = Limit> {
    (algorithms(), numbers(), numbers(), numbers()).prop_filter_map("no such limit", |(kind, length, amount, burst)| {
        let period = Period::fixed(Span::from_micros(length.max(1_000))).ok()?;
        let most = match kind {
            Algorithm::SlidingLog | Algorithm::Concurrency => Limit::MAX_ENTRIES.min(period.max_count()),
            _ => period.max_count(),
        };
        let kind = match kind {
            Algorithm::Bucket { paced, .. } => Algorithm::Bucket { burst: burst.min(most), paced },
            other => other,
        };
        Limit::new(amount.min(most), period, kind).ok()
    })
}

/// Every number that a store would have to write.
fn numbers_in(state: &CounterState) -> Vec<u64> {
    match state {
        CounterState::Fresh => vec![],
        CounterState::Bucket(it) => vec![it.level, it.at],
        CounterState::FixedWindow(it) => vec![it.start, it.used],
        CounterState::SlidingWindow(it) => vec![it.start, it.counts[0], it.counts[1]],
        CounterState::SubWindows(it) => it.counts.iter().copied().chain([it.start]).collect(),
        CounterState::SlidingLog(it) => {
            it.entries.iter().flat_map(|entry| [entry.at, entry.units]).chain([it.total]).collect()
        }
        CounterState::Holds(it) => it.holds.iter().map(|hold| hold.expires).chain([it.at]).collect(),
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn nothing_overflows(
        limit in limits(),
        history in prop::collection::vec((numbers(), prop::collection::vec((asks(), numbers(), modes()), 1..4)), 1..20),
    ) {
        let mut world = World::default();
        for (id, (micros, charges)) in (0..).zip(history) {
            let now = Timestamp::from_micros(micros);
            let charge = |(ask, units, mode): (Ask, u64, Mode)| Asks { key: 0, ask, units, mode };
            let asks: Vec<Asks> = charges.into_iter().map(charge).collect();
            let settlement = world.settle(id, std::slice::from_ref(&limit), &asks, now);
            for reading in &settlement.readings {
                prop_assert_eq!(reading.admits, reading.wait == Wait::None, "{:?}", reading);
                prop_assert!(reading.wait != Wait::For(Span::ZERO), "a wait of nothing");
                prop_assert!(reading.remaining <= limit.quota());
            }
            for state in world.states.values() {
                prop_assert!(numbers_in(state).iter().all(|number| *number < 2 * EXACT), "{state:?}");
                if let CounterState::Bucket(bucket) = state {
                    prop_assert!(bucket.level < EXACT);
                }
                if let CounterState::FixedWindow(window) = state {
                    prop_assert!(window.used <= limit.period().max_count());
                }
            }
        }
    }
}

/// Debits could add entries without bound: a log merges them into its newest entry, and holds drop the oldest.
#[test]
fn entries_are_bounded() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::Concurrency] {
        let limit = Limit::new(5, Period::fixed(Span::from_secs(60)).unwrap(), algorithm).unwrap();
        let mut state = CounterState::default();
        for id in 0..Limit::MAX_ENTRIES + 50 {
            let now = state.advance(&limit, 1_000_000_000 + id).now;
            state.spend(&TickCharge { limit: &limit, now, by: ClaimId(u128::from(id)), units: 1 });
        }
        let entries = match &state {
            CounterState::SlidingLog(log) => {
                assert_eq!(log.total, Limit::MAX_ENTRIES + 50, "no unit is lost");
                log.entries.len()
            }
            CounterState::Holds(holds) => holds.holds.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(entries as u64, Limit::MAX_ENTRIES);
    }
}
