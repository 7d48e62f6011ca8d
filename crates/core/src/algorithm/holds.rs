//! Concurrency: holds, each with the id of the claim that took it. A hold is released or expires.

use super::{AlgorithmState, EffectiveTime, TickCharge, WaitUntil, effective_time};
use crate::EXACT;
use crate::claim::ClaimId;
use crate::limit::Limit;

/// The holds, by expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The tick of the last change.
    pub at: u64,
    /// At most [`Limit::MAX_ENTRIES`].
    pub holds: Vec<Hold>,
    /// The number of holds at the front that have expired. They are removed at the next change; a peek must not
    /// change the state.
    expired: usize,
}

/// One occupied place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The claim that took it.
    pub by: ClaimId,
    /// The first tick at which it is free again.
    pub expires: u64,
}

impl Holds {
    /// Holds sorted by expiry, last changed at this tick.
    pub fn new(at: u64, holds: Vec<Hold>) -> Holds {
        Holds { at, holds, expired: 0 }
    }

    pub(super) fn holds(&self, by: ClaimId) -> bool {
        self.live().iter().any(|hold| hold.by == by)
    }

    fn live(&self) -> &[Hold] {
        &self.holds[self.expired..]
    }

    fn drop_expired(&mut self) {
        self.holds.drain(..self.expired);
        self.expired = 0;
    }

    fn release(&mut self, by: ClaimId) {
        if let Some(index) = self.holds.iter().position(|hold| hold.by == by) {
            self.holds.remove(index);
        }
    }
}

impl AlgorithmState for Holds {
    fn is_sound(&self) -> bool {
        // A hold lasts for a period, and both the tick and the period are below this bound.
        let last = 2 * EXACT;
        self.at < EXACT
            && self.holds.len() as u64 <= Limit::MAX_ENTRIES
            && self.holds.iter().all(|hold| hold.expires < last)
            && self.holds.iter().is_sorted_by_key(|hold| hold.expires)
    }

    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        let effective = effective_time(self.at, now, limit.period().ticks());
        if effective.moved {
            self.at = now;
            for hold in &mut self.holds {
                hold.expires = hold.expires.min(now + limit.period().ticks());
            }
        }
        self.expired = self.holds.partition_point(|hold| hold.expires <= effective.now);
        effective
    }

    fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.live().len() as u64
    }

    /// A claim takes one hold, whatever the units. The same claim again extends its hold.
    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        if charge.units == 0 {
            return 0;
        }
        self.drop_expired();
        self.release(charge.by);
        if self.holds.len() as u64 >= Limit::MAX_ENTRIES {
            self.holds.remove(0);
        }
        let expires = charge.now + charge.limit.period().ticks();
        let after = self.holds.partition_point(|hold| hold.expires <= expires);
        self.holds.insert(after, Hold { by: charge.by, expires });
        self.at = charge.now;
        1
    }

    fn give_back(&mut self, charge: &TickCharge<'_>, _taken_at: u64) -> u64 {
        if charge.units == 0 || !self.holds(charge.by) {
            return 0;
        }
        self.drop_expired();
        self.release(charge.by);
        self.at = charge.now;
        1
    }

    /// A hold is only given back by its claim.
    fn credit(&mut self, _charge: &TickCharge<'_>) -> u64 {
        0
    }

    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        let room = charge.limit.amount() - charge.units;
        let too_many = self.live().len() as u64 - room;
        match self.live().get(too_many as usize - 1) {
            Some(last) => WaitUntil::Tick(last.expires),
            None => WaitUntil::Now,
        }
    }

    fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        self.stale_at(limit).max(now)
    }

    fn stale_at(&self, _limit: &Limit) -> u64 {
        self.holds.last().map_or(0, |last| last.expires)
    }
}
