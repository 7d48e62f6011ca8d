//! The in-memory store against the reference: the same claims, the same answers, whatever comes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Scope, Settlement, Span,
    Timestamp, Value,
};
use tollgate_store::conformance::{Subject, block_on, reference::Reference};
use tollgate_store::{ManualClock, MemoryConfig, Store};

const START: Timestamp = Timestamp::from_micros(1_767_225_600_123_456);
const PERIOD: Span = Span::from_secs(10);
const VALUES: [&str; 3] = ["x", "y", ""];

#[derive(Clone, Debug)]
struct Asks {
    rule: usize,
    values: (usize, usize),
    ask: (u8, usize),
    units: u64,
    mode: Mode,
}

#[derive(Clone, Debug)]
struct Step {
    moves: u64,
    id: u128,
    once: Option<(usize, u64)>,
    charges: Vec<Asks>,
}

/// Rules of every algorithm, those of odd numbers with a partition for each key.
fn rules(amount: u64) -> Vec<(Scope, Limit)> {
    let algorithms = [
        Algorithm::Bucket { burst: amount, paced: false },
        Algorithm::Bucket { burst: 2 * amount, paced: true },
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 5 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
        Algorithm::SlidingLog,
    ];
    let rule = |(number, algorithm): (usize, Algorithm)| {
        let limit = Limit::new(amount, Period::fixed(PERIOD).unwrap(), algorithm).unwrap();
        let home = if number % 2 == 0 { Home::Caller(number / 2 % 2) } else { Home::Own };
        (Scope::new("d", &number.to_string(), algorithm, limit.period(), home), limit)
    };
    algorithms.into_iter().enumerate().map(rule).collect()
}

fn steps() -> impl Strategy<Value = Step> {
    let mode =
        prop_oneof![6 => Just(Mode::Enforce), 1 => Just(Mode::AnyOf), 1 => Just(Mode::Shadow), 1 => Just(Mode::Soft)];
    let ask = (prop::sample::select(vec![0u8, 0, 0, 0, 0, 1, 2, 3]), 0usize..5);
    let charge = (0usize..8, (0usize..3, 0usize..3), ask, 0u64..6, mode)
        .prop_map(|(rule, values, ask, units, mode)| Asks { rule, values, ask, units, mode });
    let moves = prop_oneof![3 => Just(0u64), 5 => 0u64..2_000_000, 1 => 0u64..25_000_000];
    let once = prop::option::weighted(0.2, (0usize..3, 0u64..2));
    (moves, 0u128..8, once, prop::collection::vec(charge, 1..6)).prop_map(|(moves, id, once, charges)| Step {
        moves,
        id,
        once,
        charges,
    })
}

fn settle(
    store: &impl Store,
    rules: &[(Scope, Limit)],
    names: &Scope,
    step: &Step,
    moments: &[Timestamp],
) -> Settlement {
    let charge = |asks: &Asks| {
        let (scope, limit) = &rules[asks.rule];
        let values: SmallVec<[Value<'_>; 2]> = smallvec![
            Value::Text(VALUES[asks.values.0]),
            if asks.values.1 == 2 { Value::Absent } else { Value::Text(VALUES[asks.values.1]) }
        ];
        let ask = match asks.ask {
            (0, _) => Ask::Exactly,
            (1, _) => Ask::UpTo,
            (2, _) => Ask::Regardless,
            (_, ago) => Ask::Return { taken_at: moments[moments.len().saturating_sub(ago + 1)] },
        };
        let key = Key::new(scope, values);
        Charge { key, limit, ask, units: asks.units, mode: asks.mode, on_failure: OnFailure::Deny }
    };
    let once = step.once.map(|(name, body)| Once {
        key: Key::new(names, smallvec![Value::Text(VALUES[name])]),
        body,
        keep: Span::from_secs(20),
    });
    block_on(store.settle(&Claim { id: ClaimId(step.id), charges: step.charges.iter().map(charge).collect(), once }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn memory_answers_like_the_reference(amount in 0u64..8, history in prop::collection::vec(steps(), 1..60)) {
        let rules = rules(amount);
        let names = Scope::new("d", "names", Algorithm::FixedWindow, rules[0].1.period(), Home::Own);
        let clock = ManualClock::default();
        let memory = MemoryConfig { max_keys: 5_000, max_once: 5_000, grace: Span::ZERO }.build_with(clock.clone());
        let reference = Reference::default();
        let mut moments = vec![START];
        for (number, step) in history.iter().enumerate() {
            let now = moments[moments.len() - 1].after(Span::from_micros(step.moves));
            moments.push(now);
            clock.set(now);
            reference.set_now(now);
            let expected = settle(&reference, &rules, &names, step, &moments);
            let mut actual = settle(&memory, &rules, &names, step, &moments);
            if actual.replay == tollgate_core::Replay::Conflict && expected.replay == actual.replay {
                // What a conflict says of the counters is the store's own affair.
                actual.readings.clone_from(&expected.readings);
            }
            prop_assert_eq!(actual, expected, "step {} at {:?}: {:?}", number, now, step);
        }
    }
}
