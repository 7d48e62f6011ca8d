//! Fixed window: a count for each aligned period.

use super::{AlgorithmState, EffectiveTime, TickCharge, WaitUntil, effective_time};
use crate::EXACT;
use crate::limit::Limit;

/// The units used in the period that began at `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    /// The period's first tick.
    pub start: u64,
    /// Units taken in it.
    pub used: u64,
}

impl AlgorithmState for FixedWindow {
    fn is_sound(&self) -> bool {
        self.start < EXACT && self.used < EXACT
    }

    #[inline]
    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        let effective = effective_time(self.start, now, limit.period().ticks());
        let (start, _) = limit.period().around(effective.now);
        if start != self.start && !effective.moved {
            self.used = 0;
        }
        self.start = start;
        effective
    }

    #[inline]
    fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.used
    }

    #[inline]
    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        let max = charge.limit.period().max_count();
        let units = charge.units.min(max);
        self.used = (self.used + units).min(max);
        units
    }

    /// Units of a period that is over are not given back.
    fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64 {
        let (start, _) = charge.limit.period().around(taken_at);
        if start != self.start {
            return 0;
        }
        let back = charge.units.min(self.used);
        self.used -= back;
        back
    }

    fn credit(&mut self, charge: &TickCharge<'_>) -> u64 {
        let back = charge.units.min(self.used);
        self.used -= back;
        back
    }

    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        WaitUntil::Tick(self.reset_at(charge.limit, charge.now))
    }

    #[inline]
    fn reset_at(&self, limit: &Limit, _now: u64) -> u64 {
        self.stale_at(limit)
    }

    #[inline]
    fn stale_at(&self, limit: &Limit) -> u64 {
        limit.period().around(self.start).1
    }
}
