//! Counters without a store, claims on them, and random histories.

use std::collections::HashMap;

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, CounterState, Key, Limit, Mode, OnFailure, Period, Scope, Settlement,
    Shortcuts, Span, StateSlot, Timestamp, settle,
};

/// A moment at which no window of the tests begins, inside a tick of every size.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_774_739_000_123_456);

/// A charge with the number of a counter instead of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asks {
    pub(crate) key: usize,
    pub(crate) ask: Ask,
    pub(crate) units: u64,
    pub(crate) mode: Mode,
}

impl Asks {
    pub(crate) fn exactly(key: usize, units: u64) -> Asks {
        Asks { key, ask: Ask::Exactly, units, mode: Mode::Enforce }
    }
}

/// A store that is a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    pub(crate) states: HashMap<usize, CounterState>,
}

impl World {
    /// Settles a claim; `limits` has the limit of each key.
    pub(crate) fn settle(&mut self, id: u128, limits: &[Limit], asks: &[Asks], now: Timestamp) -> Settlement {
        let scope = Scope::new("d", "r", Algorithm::FixedWindow, limits[0].period(), Home::Own);
        let charge = |asks: &Asks| Charge {
            key: Key::new(&scope, smallvec![]),
            limit: &limits[asks.key],
            ask: asks.ask,
            units: asks.units,
            mode: asks.mode,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        let claim = Claim { id: ClaimId(id), charges: asks.iter().map(charge).collect(), once: None, timeout: None };
        let keys: Vec<usize> = asks.iter().map(|asks| asks.key).collect();
        let load = |(at, key): (usize, &usize)| match keys[..at].iter().position(|earlier| earlier == key) {
            Some(earlier) => StateSlot::same_as(earlier),
            None => StateSlot::new(self.states.get(key).cloned().unwrap_or_default(), Timestamp::default()),
        };
        let mut slots: Vec<StateSlot> = keys.iter().enumerate().map(load).collect();
        let settlement = settle(&claim, &mut slots, now);
        for (key, slot) in keys.into_iter().zip(slots) {
            if slot.changed {
                self.states.insert(key, slot.state);
            }
        }
        settlement
    }

    /// Settles a claim of one enforced charge.
    pub(crate) fn take(&mut self, id: u128, limit: &Limit, units: u64, now: Timestamp) -> tollgate_core::Reading {
        self.settle(id, std::slice::from_ref(limit), &[Asks::exactly(0, units)], now).readings[0]
    }
}

/// The number of cases. `PROPERTY_TIMES` in the environment multiplies it, for long runs.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let times = std::env::var("PROPERTY_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    ProptestConfig::with_cases(cases * times)
}

/// Every algorithm; bursts are filled in by [`limit`].
pub(crate) fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::Bucket { burst: 0, paced: false }),
        Just(Algorithm::Bucket { burst: 0, paced: true }),
        Just(Algorithm::FixedWindow),
        prop::sample::select(vec![1u16, 2, 5, 10]).prop_map(|sub_windows| Algorithm::SlidingWindow { sub_windows }),
        Just(Algorithm::SlidingLog),
        Just(Algorithm::Concurrency),
    ]
}

/// A limit of this algorithm, with the burst where it is a bucket.
pub(crate) fn limit(amount: u64, burst: u64, period: &Period, algorithm: Algorithm) -> Limit {
    let algorithm = match algorithm {
        Algorithm::Bucket { paced, .. } => Algorithm::Bucket { burst, paced },
        other => other,
    };
    Limit::new(amount, period.clone(), algorithm).unwrap()
}

/// Periods in every tick, calendars among them.
pub(crate) fn periods() -> impl Strategy<Value = Period> {
    let fixed = [Span::from_micros(1_000), Span::from_secs(60), Span::from_secs(600), Span::from_secs(7_200)];
    let calendars = [
        CalendarUnit::Day,
        CalendarUnit::Week,
        CalendarUnit::Month { from_day: 31 },
        CalendarUnit::Month { from_day: 1 },
        CalendarUnit::Year,
    ];
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"];
    prop_oneof![
        3 => prop::sample::select(fixed.to_vec()).prop_map(|length| Period::fixed(length).unwrap()),
        1 => (prop::sample::select(calendars.to_vec()), prop::sample::select(zones.to_vec()))
            .prop_map(|(unit, zone)| Period::calendar(Calendar::new(unit, zone).unwrap())),
    ]
}

/// A limit of any algorithm with a small amount.
pub(crate) fn limits() -> impl Strategy<Value = Limit> {
    (algorithms(), periods(), 0u64..12, 0u64..20).prop_map(|(algorithm, period, amount, burst)| {
        let algorithm = match algorithm {
            _ if period.as_calendar().is_none() => algorithm,
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => Algorithm::SlidingWindow { sub_windows: 1 },
            _ => Algorithm::FixedWindow,
        };
        limit(amount, burst, &period, algorithm)
    })
}

/// A step in the history of one counter: a fact, a lease or a plain claim, sized for small limits. Returns refer to
/// an earlier step by how many steps ago it was.
pub(crate) fn asks() -> impl Strategy<Value = (Kind, u64)> {
    let kind = prop_oneof![
        8 => Just(Kind::Exactly),
        1 => Just(Kind::UpTo),
        1 => Just(Kind::Regardless),
        2 => (1usize..6).prop_map(Kind::Return),
        1 => Just(Kind::Reset),
        1 => Just(Kind::Credit),
    ];
    (kind, 0u64..8)
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Exactly,
    UpTo,
    Regardless,
    /// Gives back the units of an earlier step.
    Return(usize),
    Reset,
    Credit,
}

impl Kind {
    /// The ask, given the times of the steps so far.
    pub(crate) fn ask(self, moments: &[Timestamp]) -> Ask {
        match self {
            Kind::Exactly => Ask::Exactly,
            Kind::UpTo => Ask::UpTo,
            Kind::Regardless => Ask::Regardless,
            Kind::Return(ago) => {
                Ask::Return { taken_at: moments[moments.len().saturating_sub(ago + 1).min(moments.len() - 1)] }
            }
            Kind::Reset => Ask::Reset,
            Kind::Credit => Ask::Credit,
        }
    }
}

pub(crate) fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![6 => Just(Mode::Enforce), 1 => Just(Mode::AnyOf), 1 => Just(Mode::Shadow), 1 => Just(Mode::Soft)]
}

/// Fractions of a period, in thousandths, by which time advances between two steps.
pub(crate) fn steps() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0u64), 5 => 0u64..300, 2 => 300u64..2_500]
}

/// The moment a number of thousandths of the period later.
pub(crate) fn later(now: Timestamp, limit: &Limit, thousandths: u64) -> Timestamp {
    now.after(Span::from_micros(limit.period().span().as_micros() / 1_000 * thousandths + thousandths % 7))
}
