//! Token bucket, GCRA and leaky bucket: three names of one arithmetic.
//!
//! The level counts in unit·ticks: a unit raises it by the period, a tick lowers it by the amount. So no rate drifts, and a
//! changed amount keeps what was used.

use super::{Advanced, Asked, WaitUntil, stand};
use crate::EXACT;
use crate::limit::{Algorithm, Limit};

/// How full the bucket was, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Unit·ticks, below [`EXACT`].
    pub level: u64,
    /// The tick at which that was so.
    pub at: u64,
}

impl Bucket {
    pub(super) fn is_sound(&self) -> bool {
        self.level < EXACT && self.at < EXACT
    }

    pub(super) fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        let stood = stand(self.at, now, limit.period().ticks());
        if !stood.moved {
            let drained = drained(limit, stood.now - self.at, self.level);
            if drained == 0 && limit.amount() == 0 {
                // What it holds is forgotten a period after it was last spent, however often it is looked at until then.
                return stood;
            }
            self.level -= self.level.min(drained);
        }
        self.at = stood.now;
        stood
    }

    /// A unit of which some has drained still takes a whole one's place.
    pub(super) fn used(&self, limit: &Limit, _now: u64) -> u64 {
        self.level.div_ceil(limit.period().ticks())
    }

    pub(super) fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let units = asked.units.min(asked.limit.period().most());
        if units > 0 {
            self.level = (self.level + units * asked.limit.period().ticks()).min(EXACT - 1);
            self.at = asked.now;
        }
        units
    }

    /// What has drained since is no longer there to be returned.
    pub(super) fn give_back(&mut self, asked: &Asked<'_>, taken_at: u64) -> u64 {
        let period = asked.limit.period().ticks();
        let taken = asked.units.min(asked.limit.period().most()) * period;
        let kept = taken - drained(asked.limit, asked.now.saturating_sub(taken_at), taken).min(taken);
        let back = kept.min(self.level);
        self.level -= back;
        back.div_ceil(period)
    }

    pub(super) fn credit(&mut self, asked: &Asked<'_>) -> u64 {
        let period = asked.limit.period().ticks();
        let back = (asked.units.min(asked.limit.period().most()) * period).min(self.level);
        self.level -= back;
        back.div_ceil(period)
    }

    pub(super) fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        let fits = (asked.limit.quota() - asked.units) * asked.limit.period().ticks();
        WaitUntil::Tick(self.at + ticks_to_drain(asked.limit, self.level.saturating_sub(fits)))
    }

    pub(super) fn reset_at(&self, limit: &Limit, _now: u64) -> u64 {
        self.stale_at(limit)
    }

    pub(super) fn stale_at(&self, limit: &Limit) -> u64 {
        self.at + ticks_to_drain(limit, self.level)
    }

    pub(super) fn delay(&self, limit: &Limit, now: u64) -> u64 {
        match limit.algorithm() {
            Algorithm::Bucket { paced: true, .. } => self.stale_at(limit).saturating_sub(now),
            _ => 0,
        }
    }
}

/// How much of `level` drains in so many ticks; at most more than all of it. A bucket of amount 0 pays nothing back: it
/// forgets, whole, after a period.
fn drained(limit: &Limit, ticks: u64, level: u64) -> u64 {
    match limit.amount() {
        0 if ticks >= limit.period().ticks() => level,
        amount => ticks.saturating_mul(amount),
    }
}

fn ticks_to_drain(limit: &Limit, level: u64) -> u64 {
    match limit.amount() {
        _ if level == 0 => 0,
        0 => limit.period().ticks(),
        amount => level.div_ceil(amount),
    }
}
