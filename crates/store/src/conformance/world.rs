//! Counters of every algorithm for the suite, and claims on them.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Span, Timestamp, Value,
};

use super::{Subject, block_on};
use crate::Store;

/// The start time of the parts that are code. All of their windows begin at this time.
pub(super) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The counters of a rule, one for each value.
#[derive(Clone, Debug)]
pub(super) struct TestCounter {
    pub(super) scope: Scope,
    pub(super) limit: Limit,
}

impl TestCounter {
    pub(super) fn new(rule: &str, limit: Limit, home: Home) -> TestCounter {
        let scope = Scope::new("conformance", rule, limit.algorithm(), limit.period(), home);
        TestCounter { scope, limit }
    }

    /// A limit of `amount` units in ten seconds.
    pub(super) fn in_ten_seconds(rule: &str, amount: u64, algorithm: Algorithm) -> TestCounter {
        let limit = Period::fixed(Span::from_secs(10)).and_then(|period| Limit::new(amount, period, algorithm));
        match limit {
            Ok(limit) => TestCounter::new(rule, limit, Home::Caller(0)),
            Err(error) => panic!("the suite uses an invalid limit: {error}"),
        }
    }

    pub(super) fn key<'a>(&'a self, value: &'a str) -> Key<'a> {
        Key::new(&self.scope, smallvec![Value::Text(value)])
    }

    pub(super) fn charge<'a>(&'a self, value: &'a str, ask: Ask, units: u64, mode: Mode) -> Charge<'a> {
        Charge {
            key: self.key(value),
            limit: &self.limit,
            ask,
            units,
            mode,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        }
    }

    /// Takes the units or nothing, enforced.
    pub(super) fn take<'a>(&'a self, value: &'a str, units: u64) -> Charge<'a> {
        self.charge(value, Ask::Exactly, units, Mode::Enforce)
    }
}

/// A counter of each algorithm, `amount` in ten seconds.
pub(super) fn one_of_each(amount: u64) -> Vec<TestCounter> {
    [
        ("token", Algorithm::Bucket { burst: amount, paced: false }),
        ("leaky", Algorithm::Bucket { burst: amount, paced: true }),
        ("fixed", Algorithm::FixedWindow),
        ("sliding", Algorithm::SlidingWindow { sub_windows: 1 }),
        ("parts", Algorithm::SlidingWindow { sub_windows: 10 }),
        ("log", Algorithm::SlidingLog),
        ("holds", Algorithm::Concurrency),
    ]
    .into_iter()
    .map(|(rule, algorithm)| TestCounter::in_ten_seconds(rule, amount, algorithm))
    .collect()
}

pub(super) fn claim<'a>(id: u128, charges: impl IntoIterator<Item = Charge<'a>>) -> Claim<'a> {
    Claim { id: ClaimId(id), charges: charges.into_iter().collect(), once: None, timeout: None }
}

pub(super) fn settle<S: Subject>(subject: &S, claim: &Claim<'_>) -> Settlement {
    let charges = claim.charges.iter().cloned();
    let charges = charges.map(|charge| Charge { shortcuts: subject.shortcuts(charge.limit), ..charge }).collect();
    block_on(subject.store().settle(&Claim { charges, ..claim.clone() }))
}

/// Settles a claim of one charge.
pub(super) fn settle_one<S: Subject>(subject: &S, id: u128, charge: Charge<'_>) -> Reading {
    let settlement = settle(subject, &claim(id, [charge]));
    match settlement.readings.as_slice() {
        [reading] => *reading,
        readings => panic!("a claim of one charge was answered with {} readings", readings.len()),
    }
}

/// The readings of all counters for all values, without taking units.
pub(super) fn peek<S: Subject>(subject: &S, counters: &[TestCounter], values: &[&str]) -> Vec<Reading> {
    let charges = counters.iter().flat_map(|counter| values.iter().map(|value| counter.take(value, 0)));
    charges.map(|charge| settle_one(subject, u128::MAX, charge)).collect()
}
