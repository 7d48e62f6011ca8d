//! Random claims on counters of every algorithm, and requests that begin and end.

#![allow(clippy::unwrap_used, reason = "a suite reports what is wrong by panicking, as every test does")]

pub mod requests;

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Scope, Settlement, Shortcuts,
    Span, Timestamp, Value,
};

use super::block_on;
use crate::Store;

/// The start of histories.
pub const START: Timestamp = Timestamp::from_micros(1_767_225_600_123_456);
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

/// A claim, and by how much the clock moves before it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Microseconds.
    pub moves: u64,
    id: u128,
    /// Key, body, and lifetime in seconds.
    once: Option<(usize, u64, u64)>,
    charges: Vec<Asks>,
}

/// Rules of every algorithm. Those with odd numbers have a partition for each key.
pub fn rules(amount: u64) -> Vec<(Scope, Limit)> {
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

/// The scope of idempotency keys.
pub fn names(rules: &[(Scope, Limit)]) -> Scope {
    Scope::new("d", "names", Algorithm::FixedWindow, rules[0].1.period(), Home::Own)
}

/// Any step.
pub fn steps() -> impl Strategy<Value = Step> {
    let mode =
        prop_oneof![6 => Just(Mode::Enforce), 1 => Just(Mode::AnyOf), 1 => Just(Mode::Shadow), 1 => Just(Mode::Soft)];
    let ask = (prop::sample::select(vec![0u8, 0, 0, 0, 0, 1, 2, 3, 4, 5]), 0usize..5);
    let charge = (0usize..8, (0usize..3, 0usize..3), ask, 0u64..6, mode)
        .prop_map(|(rule, values, ask, units, mode)| Asks { rule, values, ask, units, mode });
    let moves = prop_oneof![3 => Just(0u64), 5 => 0u64..2_000_000, 1 => 0u64..25_000_000];
    let once = prop::option::weighted(0.2, (0usize..3, 0u64..2, prop::sample::select(vec![20u64, 20, 20, 0])));
    (moves, 0u128..8, once, prop::collection::vec(charge, 0..6)).prop_map(|(moves, id, once, charges)| Step {
        moves,
        id,
        once,
        charges,
    })
}

/// Settles a step's claim. Units that it gives back were taken at one of the `moments`.
pub fn settle(
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
            (4, _) => Ask::Reset,
            (5, _) => Ask::Credit,
            (_, ago) => Ask::Return { taken_at: moments[moments.len().saturating_sub(ago + 1)] },
        };
        let key = Key::new(scope, values);
        Charge {
            key,
            limit,
            ask,
            units: asks.units,
            mode: asks.mode,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        }
    };
    let once = step.once.map(|(name, body, keep)| Once {
        key: Key::new(names, smallvec![Value::Text(VALUES[name])]),
        body,
        terms: step.charges.len() as u64,
        keep: Span::from_secs(keep),
    });
    block_on(store.settle(&Claim {
        id: ClaimId(step.id),
        charges: step.charges.iter().map(charge).collect(),
        once,
        timeout: None,
    }))
}
