//! Fixed window: a count for each aligned period.

use super::{Advanced, Asked, WaitUntil, stand};
use crate::EXACT;
use crate::limit::Limit;

/// What was used in the period that began at `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    /// The period's first tick.
    pub start: u64,
    /// Units taken in it.
    pub used: u64,
}

impl FixedWindow {
    pub(super) fn is_sound(&self) -> bool {
        self.start < EXACT && self.used < EXACT
    }

    pub(super) fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        let stood = stand(self.start, now, limit.period().ticks());
        let (start, _) = limit.period().around(stood.now);
        if start != self.start && !stood.moved {
            self.used = 0;
        }
        self.start = start;
        stood
    }

    pub(super) fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.used
    }

    pub(super) fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let most = asked.limit.period().most();
        let units = asked.units.min(most);
        self.used = (self.used + units).min(most);
        units
    }

    /// A period that is over is not touched.
    pub(super) fn give_back(&mut self, asked: &Asked<'_>, taken_at: u64) -> u64 {
        let (start, _) = asked.limit.period().around(taken_at);
        if start != self.start {
            return 0;
        }
        let back = asked.units.min(self.used);
        self.used -= back;
        back
    }

    pub(super) fn credit(&mut self, asked: &Asked<'_>) -> u64 {
        let back = asked.units.min(self.used);
        self.used -= back;
        back
    }

    pub(super) fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        WaitUntil::Tick(self.reset_at(asked.limit, asked.now))
    }

    pub(super) fn reset_at(&self, limit: &Limit, _now: u64) -> u64 {
        self.stale_at(limit)
    }

    pub(super) fn stale_at(&self, limit: &Limit) -> u64 {
        limit.period().around(self.start).1
    }
}
