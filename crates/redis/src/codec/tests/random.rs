//! Random claims on counters of every algorithm, period and quota.

use fastrand::Rng;
use smallvec::smallvec;
use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Scope, Shortcuts, Span,
    Timestamp, Value,
};

/// A history: rules whose quotas change, and a clock that moves.
pub(super) struct Random {
    rng: Rng,
    rules: Vec<Rule>,
    names: Scope,
    /// The times of settlements, the latest last.
    moments: Vec<Timestamp>,
    /// Idempotent claims, to be repeated.
    idempotent: Vec<RandomClaim>,
    /// A bucket is dropped when it is empty by the quota of the last write; by a smaller quota it might not be.
    /// Buckets whose quota changes are therefore in histories that are too short for an expiry.
    is_short: bool,
}

/// A counter's scope, and its limits in turn.
struct Rule {
    scope: Scope,
    limits: Vec<Limit>,
}

/// A claim, by the indices of its parts.
#[derive(Clone, Debug)]
pub(super) struct RandomClaim {
    id: u128,
    charges: Vec<Asks>,
    once: Option<RandomOnce>,
}

/// The idempotency key of a claim.
#[derive(Clone, Copy, Debug)]
struct RandomOnce {
    name: usize,
    body: u64,
    terms: u64,
    keep: Span,
}

#[derive(Clone, Debug)]
struct Asks {
    rule: usize,
    limit: usize,
    values: [usize; 2],
    ask: Ask,
    units: u64,
    mode: Mode,
}

const VALUES: [&str; 4] = ["x", "y", "", "a}b"];

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut rng = Rng::with_seed(seed);
        let is_short = seed.is_multiple_of(4);
        let rules = (0..10).map(|number| Rule::random(number, is_short, &mut rng)).collect();
        let period = Period::fixed(Span::from_secs(1)).unwrap();
        let names = Scope::new("d", "names", Algorithm::FixedWindow, &period, Home::Caller(0));
        let start = Timestamp::from_micros(1_767_225_600_123_456 + rng.u64(0..100_000_000_000));
        Random { rng, rules, names, moments: vec![start], idempotent: Vec::new(), is_short }
    }

    /// Moves the clock: not at all, a little, far, and sometimes back.
    pub(super) fn step(&mut self) -> Timestamp {
        let last = *self.moments.last().unwrap();
        let latest = *self.moments.iter().max().unwrap();
        let next = match self.rng.u8(0..20) {
            0..5 => last,
            5..13 => last.after(Span::from_micros(self.rng.u64(0..3_000_000))),
            13..16 => last.after(Span::from_micros(self.rng.u64(0..60_000_000))),
            16..18 if !self.is_short => last.after(Span::from_secs(self.rng.u64(0..20_000))),
            16..19 => last.before(Span::from_micros(self.rng.u64(0..5_000_000))),
            _ => last.before(Span::from_secs(self.rng.u64(0..900))),
        };
        // A counter that was stale when the clock was ahead may have been dropped, and the reference never drops any.
        let next = next.max(latest.before(Span::from_secs(900)));
        self.moments.push(next);
        next
    }

    pub(super) fn batch(&mut self) -> Vec<RandomClaim> {
        let count = *self.rng.choice(&[1, 1, 2, 5, 20]).unwrap();
        (0..count).map(|_| self.claim()).collect()
    }

    fn claim(&mut self) -> RandomClaim {
        if !self.idempotent.is_empty() && self.rng.u8(0..8) == 0 {
            return self.idempotent[self.rng.usize(0..self.idempotent.len())].clone();
        }
        // Most claims share counters with others; some have a single rule, as a batch on one key.
        let count = *self.rng.choice(&[1, 1, 1, 2, 4, 7]).unwrap();
        let is_plain = self.rng.bool();
        let mut charges: Vec<Asks> = (0..count).map(|_| self.asks(is_plain)).collect();
        // As most claims: the same units of small counters.
        if is_plain && self.rng.bool() {
            charges.retain(|asks| !matches!(asks.rule, 4..7));
            let units = charges.first().map_or(1, |asks| asks.units);
            charges.iter_mut().for_each(|asks| asks.units = units);
        }
        let mut claim = RandomClaim { id: u128::from(self.rng.u8(0..6)) << 100 | 7, charges, once: None };
        if self.rng.u8(0..8) == 0 {
            // Repetitions with other charges and with a different request: only the body counts.
            let (name, body) = (self.rng.usize(0..3), self.rng.u64(0..3));
            let keep = Span::from_secs(if self.rng.u8(0..4) == 0 { 0 } else { 20 });
            claim.once = Some(RandomOnce { name, body, terms: self.rng.u64(..), keep });
            if self.rng.u8(0..8) == 0 {
                claim.charges.clear();
            }
            self.idempotent.push(claim.clone());
        }
        claim
    }

    fn asks(&mut self, is_plain: bool) -> Asks {
        let rng = &mut self.rng;
        let ago = rng.usize(0..6).min(self.moments.len() - 1);
        let taken_at = self.moments[self.moments.len() - 1 - ago];
        let returns = Ask::Return { taken_at };
        let asks = [
            Ask::Exactly,
            Ask::Exactly,
            Ask::Exactly,
            Ask::UpTo,
            Ask::Regardless,
            returns,
            returns,
            Ask::Credit,
            Ask::Reset,
        ];
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::AnyOf, Mode::Shadow, Mode::Soft];
        let rule = rng.usize(0..self.rules.len());
        let limit = if rng.u8(0..10) == 0 { rng.usize(0..self.rules[rule].limits.len()) } else { 0 };
        let units = match rng.u8(0..12) {
            0 => 0,
            1 => rng.u64(0..40),
            2 if rng.u8(0..10) == 0 => u64::MAX,
            3 if rng.u8(0..10) == 0 => rng.u64(..) >> rng.u32(0..64),
            _ => rng.u64(1..4),
        };
        Asks {
            rule,
            limit,
            values: [rng.usize(0..VALUES.len()), rng.usize(0..VALUES.len() + 1)],
            ask: if is_plain { Ask::Exactly } else { asks[rng.usize(0..asks.len())] },
            units,
            mode: modes[rng.usize(0..modes.len())],
        }
    }
}

impl Rule {
    fn random(number: usize, buckets_change: bool, rng: &mut Rng) -> Rule {
        let period = match rng.u8(0..8) {
            0..4 => Period::fixed(Span::from_micros(10_000_000)),
            4 => Period::fixed(Span::from_micros(1_000 * rng.u64(1..120_000))),
            5 => Period::fixed(Span::from_secs(300)),
            _ => Period::fixed(Span::from_secs(60 * rng.u64(60..600))),
        };
        let calendars = [
            (CalendarUnit::Day, "Europe/Berlin"),
            (CalendarUnit::Week, "Asia/Kathmandu"),
            (CalendarUnit::Month { from_day: 31 }, "America/New_York"),
            (CalendarUnit::Year, "UTC"),
        ];
        let (unit, zone) = calendars[rng.usize(0..calendars.len())];
        let follows_calendar = rng.u8(0..4) == 0;
        let parts = *rng.choice(&[2, 3, 5, 10, 60]).unwrap();
        let kind = if number < 7 { number } else { rng.usize(0..7) };
        let period = match kind {
            2 | 3 if follows_calendar => Period::calendar(Calendar::new(unit, zone).unwrap()),
            4 => Period::fixed(Span::from_secs(60 * rng.u64(1..5))).unwrap(),
            _ => period.unwrap(),
        };
        let most = if rng.u8(0..6) == 0 { 200 } else { 9 };
        let first = rng.u64(0..most);
        let limits: Vec<Limit> = (0..3)
            .map(|_| {
                let amount = if kind < 2 && !buckets_change { first } else { rng.u64(0..most) };
                let burst = rng.u64(0..2 * most);
                let algorithm = match kind {
                    0 => Algorithm::Bucket { burst, paced: false },
                    1 => Algorithm::Bucket { burst, paced: true },
                    2 => Algorithm::FixedWindow,
                    3 => Algorithm::SlidingWindow { sub_windows: 1 },
                    4 => Algorithm::SlidingWindow { sub_windows: parts },
                    5 => Algorithm::SlidingLog,
                    _ => Algorithm::Concurrency,
                };
                Limit::new(amount, period.clone(), algorithm).unwrap()
            })
            .collect();
        let home = [Home::Caller(0), Home::Caller(0), Home::Caller(1), Home::Own][rng.usize(0..4)];
        let scope = Scope::new("d", &number.to_string(), limits[0].algorithm(), limits[0].period(), home);
        Rule { scope, limits }
    }
}

impl RandomClaim {
    pub(super) fn claim<'a>(&self, random: &'a Random) -> Claim<'a> {
        let charge = |asks: &Asks| {
            let rule = &random.rules[asks.rule];
            let second = VALUES.get(asks.values[1]).map_or(Value::Absent, |text| Value::Text(text));
            Charge {
                key: Key::new(&rule.scope, smallvec![Value::Text(VALUES[asks.values[0]]), second]),
                limit: &rule.limits[asks.limit],
                ask: asks.ask,
                units: asks.units,
                mode: asks.mode,
                on_failure: OnFailure::Deny,
                shortcuts: Shortcuts::Refusals,
            }
        };
        let once = self.once.map(|RandomOnce { name, body, terms, keep }| Once {
            key: Key::new(&random.names, smallvec![Value::Text(VALUES[name])]),
            body,
            terms,
            keep,
        });
        Claim { id: ClaimId(self.id), charges: self.charges.iter().map(charge).collect(), once, timeout: None }
    }
}
