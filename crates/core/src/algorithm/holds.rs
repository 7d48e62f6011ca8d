//! Concurrency: holds, each with the id of the claim that took it. They are released, or expire by themselves.

use super::{Advanced, Asked, WaitUntil, stand};
use crate::EXACT;
use crate::claim::ClaimId;
use crate::limit::Limit;

/// The holds, soonest expiry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The tick at which they last changed.
    pub at: u64,
    /// At most [`Limit::MOST_ENTRIES`].
    pub holds: Vec<Hold>,
    /// How many of the first have expired now. They go when the holds change: a look must leave them as they are.
    expired: usize,
}

/// One slot, taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Who has it.
    pub by: ClaimId,
    /// The first tick at which it is free again.
    pub expires: u64,
}

impl Holds {
    /// These holds, soonest expiry first, which last changed at this tick.
    pub fn of(at: u64, holds: Vec<Hold>) -> Holds {
        Holds { at, holds, expired: 0 }
    }

    pub(super) fn is_sound(&self) -> bool {
        // A hold lasts for a period, and both a moment and a period are below this.
        let last = 2 * EXACT;
        self.at < EXACT
            && self.holds.len() as u64 <= Limit::MOST_ENTRIES
            && self.holds.iter().all(|hold| hold.expires < last)
            && self.holds.iter().is_sorted_by_key(|hold| hold.expires)
    }

    pub(super) fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        let stood = stand(self.at, now, limit.period().ticks());
        if stood.moved {
            self.at = now;
            for hold in &mut self.holds {
                hold.expires = hold.expires.min(now + limit.period().ticks());
            }
        }
        self.expired = self.holds.partition_point(|hold| hold.expires <= stood.now);
        stood
    }

    pub(super) fn holds(&self, by: ClaimId) -> bool {
        self.live().iter().any(|hold| hold.by == by)
    }

    pub(super) fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.live().len() as u64
    }

    /// However many units: a claim holds one slot. The same claim again holds it for longer.
    pub(super) fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        if asked.units == 0 {
            return 0;
        }
        self.drop_expired();
        self.release(asked.by);
        if self.holds.len() as u64 >= Limit::MOST_ENTRIES {
            self.holds.remove(0);
        }
        let expires = asked.now + asked.limit.period().ticks();
        let after = self.holds.partition_point(|hold| hold.expires <= expires);
        self.holds.insert(after, Hold { by: asked.by, expires });
        self.at = asked.now;
        1
    }

    pub(super) fn give_back(&mut self, asked: &Asked<'_>, _taken_at: u64) -> u64 {
        if asked.units == 0 || !self.holds(asked.by) {
            return 0;
        }
        self.drop_expired();
        self.release(asked.by);
        self.at = asked.now;
        1
    }

    /// A slot is its holder's.
    pub(super) fn credit(&mut self, _asked: &Asked<'_>) -> u64 {
        0
    }

    pub(super) fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        let room = asked.limit.amount() - asked.units;
        let too_many = self.live().len() as u64 - room;
        match self.live().get(too_many as usize - 1) {
            Some(last) => WaitUntil::Tick(last.expires),
            None => WaitUntil::Now,
        }
    }

    pub(super) fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        self.stale_at(limit).max(now)
    }

    pub(super) fn stale_at(&self, _limit: &Limit) -> u64 {
        self.holds.last().map_or(0, |last| last.expires)
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
