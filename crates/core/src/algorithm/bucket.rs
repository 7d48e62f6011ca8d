//! Token bucket, GCRA and leaky bucket, which share one arithmetic.
//!
//! The level is counted in unit·ticks: a unit raises it by the period, a tick lowers it by the amount. The rate
//! therefore does not drift, and a changed amount preserves the used units.

use super::{AlgorithmState, EffectiveTime, TickCharge, WaitUntil, effective_time};
use crate::EXACT;
use crate::limit::{Algorithm, Limit};

/// The level of the bucket at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Unit·ticks, below [`EXACT`].
    pub level: u64,
    /// The tick of the level.
    pub at: u64,
}

impl AlgorithmState for Bucket {
    fn is_sound(&self) -> bool {
        self.level < EXACT && self.at < EXACT
    }

    #[inline]
    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        let effective = effective_time(self.at, now, limit.period().ticks());
        if !effective.moved {
            let drained = drained(limit, effective.now - self.at, self.level);
            if drained == 0 && limit.amount() == 0 {
                // With an amount of 0, the content is dropped one period after the last spend. Peeks must not
                // postpone that.
                return effective;
            }
            self.level -= self.level.min(drained);
        }
        self.at = effective.now;
        effective
    }

    /// A partly drained unit still occupies a whole one.
    #[inline]
    fn used(&self, limit: &Limit, _now: u64) -> u64 {
        self.level.div_ceil(limit.period().ticks())
    }

    /// `units <= quota - used`, without a division.
    #[inline]
    fn has_room(&self, charge: &TickCharge<'_>) -> bool {
        let others = charge.limit.quota().checked_sub(charge.units);
        others.is_some_and(|others| self.level <= others * charge.limit.period().ticks())
    }

    #[inline]
    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        let units = charge.units.min(charge.limit.period().max_count());
        if units > 0 {
            self.level = (self.level + units * charge.limit.period().ticks()).min(EXACT - 1);
            self.at = charge.now;
        }
        units
    }

    /// Units that have drained since cannot be given back.
    fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64 {
        let period = charge.limit.period().ticks();
        let taken = charge.units.min(charge.limit.period().max_count()) * period;
        let remaining = taken - drained(charge.limit, charge.now.saturating_sub(taken_at), taken).min(taken);
        let back = remaining.min(self.level);
        self.level -= back;
        back.div_ceil(period)
    }

    fn credit(&mut self, charge: &TickCharge<'_>) -> u64 {
        let period = charge.limit.period().ticks();
        let back = (charge.units.min(charge.limit.period().max_count()) * period).min(self.level);
        self.level -= back;
        back.div_ceil(period)
    }

    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        let fits = (charge.limit.quota() - charge.units) * charge.limit.period().ticks();
        WaitUntil::Tick(self.at + ticks_to_drain(charge.limit, self.level.saturating_sub(fits)))
    }

    #[inline]
    fn reset_at(&self, limit: &Limit, _now: u64) -> u64 {
        self.stale_at(limit)
    }

    #[inline]
    fn stale_at(&self, limit: &Limit) -> u64 {
        self.at + ticks_to_drain(limit, self.level)
    }

    #[inline]
    fn delay(&self, limit: &Limit, now: u64) -> u64 {
        match limit.algorithm() {
            Algorithm::Bucket { paced: true, .. } => self.stale_at(limit).saturating_sub(now),
            _ => 0,
        }
    }
}

/// How much of `level` drains in a number of ticks; the result may exceed `level`. A bucket of amount 0 does not
/// drain: it is emptied as a whole after one period.
#[inline]
fn drained(limit: &Limit, ticks: u64, level: u64) -> u64 {
    match limit.amount() {
        0 if ticks >= limit.period().ticks() => level,
        amount => ticks.saturating_mul(amount),
    }
}

#[inline]
fn ticks_to_drain(limit: &Limit, level: u64) -> u64 {
    match limit.amount() {
        _ if level == 0 => 0,
        0 => limit.period().ticks(),
        amount => level.div_ceil(amount),
    }
}
