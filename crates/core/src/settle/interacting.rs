//! Settles claims whose charges interact: several charges with one key, or charges that reset, give back, credit,
//! debit or lease.

use smallvec::SmallVec;

use super::{Reading, Settlement, StateSlot, Vote};
use crate::algorithm::TickCharge;
use crate::claim::{Ask, Charge, ClaimId, Mode};
use crate::limit::Algorithm;
use crate::time::Timestamp;

/// Applies the facts, then counts the votes, then takes the units of the charges that pay, then the leases.
pub(super) fn settle(by: ClaimId, charges: &[Charge<'_>], slots: &mut [StateSlot], settlement: &mut Settlement) {
    let Settlement { readings, at: now, .. } = settlement;
    readings.resize(charges.len(), Reading::INITIAL);
    for (charge, slot) in charges.iter().zip(&mut *slots) {
        if slot.same_as.is_none() {
            slot.open(charge.limit, *now);
        }
    }
    let mut settling = Settling { by, charges, slots, readings };
    let resets = settling.reset(*now);
    settling.give_back();
    settling.credit();
    settling.debit();
    if settling.vote() {
        settling.pay();
        settling.lease();
    }
    settling.read(*now);
    if resets {
        settling.drop_if_unused();
    }
}

/// A settlement in progress. The steps fill in the readings.
struct Settling<'s, 'a> {
    by: ClaimId,
    charges: &'s [Charge<'a>],
    slots: &'s mut [StateSlot],
    readings: &'s mut [Reading],
}

impl<'a> Settling<'_, 'a> {
    /// The index of the slot that a charge uses.
    fn slot(&self, at: usize) -> usize {
        self.slots[at].same_as.map_or(at, usize::from)
    }

    fn tick_charge(&self, at: usize) -> TickCharge<'a> {
        self.slots[self.slot(at)].tick_charge(&self.charges[at], self.by)
    }

    /// The index of the first charge with the same key, ask and mode. Such charges act as one.
    fn first(&self, at: usize) -> usize {
        let this = &self.charges[at];
        let same = |other: &usize| {
            let that = &self.charges[*other];
            self.slot(*other) == self.slot(at) && that.ask == this.ask && that.mode == this.mode
        };
        (0..at).find(same).unwrap_or(at)
    }

    /// Clears counters; the reading of the first charge on a key has the cleared units. Returns whether there was a
    /// reset.
    fn reset(&mut self, now: Timestamp) -> bool {
        let resets = self.with_ask(Ask::Reset);
        for at in &resets {
            let slot = self.slot(*at);
            self.readings[*at].taken = self.slots[slot].reset(self.charges[*at].limit, now);
        }
        !resets.is_empty()
    }

    /// Drops the states of counters that were reset and have counted nothing since.
    fn drop_if_unused(&mut self) {
        for at in self.with_ask(Ask::Reset) {
            let slot = self.slot(at);
            self.slots[slot].drop_if_unused(self.charges[at].limit);
        }
    }

    /// Gives back units. Charges that act as one give back their sum and share the result in order.
    fn give_back(&mut self) {
        for at in 0..self.charges.len() {
            let Ask::Return { taken_at } = self.charges[at].ask else { continue };
            if self.first(at) != at {
                continue;
            }
            let ones: SmallVec<[usize; 4]> =
                (at..self.charges.len()).filter(|other| self.first(*other) == at).collect();
            let mut charge = self.tick_charge(at);
            charge.units = ones.iter().fold(0, |units, one| units.saturating_add(self.tick_charge(*one).units));
            let slot = self.slot(at);
            let slot = &mut self.slots[slot];
            let mut back = slot.state.give_back(&charge, charge.limit.period().tick().at(taken_at));
            slot.changed |= back > 0;
            for one in ones {
                self.readings[one].taken = back.min(self.tick_charge(one).units);
                back -= self.readings[one].taken;
            }
        }
    }

    /// Gives back units regardless of when they were taken.
    fn credit(&mut self) {
        for at in self.with_ask(Ask::Credit) {
            let (charge, slot) = (self.tick_charge(at), self.slot(at));
            let slot = &mut self.slots[slot];
            self.readings[at].taken = slot.state.credit(&charge);
            slot.changed |= self.readings[at].taken > 0;
        }
    }

    /// Records units that were spent elsewhere.
    fn debit(&mut self) {
        for at in self.with_ask(Ask::Regardless) {
            let (charge, slot) = (self.tick_charge(at), self.slot(at));
            self.readings[at].taken = self.slots[slot].spend(&charge);
        }
    }

    fn vote(&mut self) -> bool {
        let mut vote = Vote::default();
        for at in self.with_ask(Ask::Exactly) {
            let admits = self.slots[self.slot(at)].state.admits(&self.needed(at));
            self.readings[at].admits = admits;
            vote.count(Ask::Exactly, self.charges[at].mode, admits);
        }
        vote.passes()
    }

    fn pay(&mut self) {
        for at in self.with_ask(Ask::Exactly) {
            let (charge, slot) = (self.tick_charge(at), self.slot(at));
            self.slots[slot].pay(&charge, self.charges[at].mode, &mut self.readings[at]);
        }
    }

    fn lease(&mut self) {
        for at in self.with_ask(Ask::UpTo) {
            let (charge, slot) = (self.tick_charge(at), self.slot(at));
            let slot = &mut self.slots[slot];
            let units = charge.units.min(slot.state.available(charge.limit, charge.now).unwrap_or(0));
            self.readings[at].taken = slot.spend(&TickCharge { units, ..charge });
        }
    }

    fn read(&mut self, now: Timestamp) {
        for at in 0..self.charges.len() {
            let (needed, slot) = (self.needed(at), self.slot(at));
            self.slots[slot].read(&needed, now, &mut self.readings[at]);
        }
    }

    /// The indices of the charges with this ask.
    fn with_ask(&self, ask: Ask) -> SmallVec<[usize; 8]> {
        (0..self.charges.len()).filter(|at| self.charges[*at].ask == ask).collect()
    }

    /// The units that there must be room for. Charges with the same key and mode need room for their sum. Charges
    /// with the same key and different modes are evaluated in order; each one takes into account what the earlier
    /// ones will pay. A claim takes one hold, however many charges it has.
    fn needed(&self, at: usize) -> TickCharge<'a> {
        let mut charge = self.tick_charge(at);
        let is_hold = charge.limit.algorithm() == Algorithm::Concurrency;
        let this = self.first(at);
        for other in 0..self.charges.len() {
            if other == at || self.slot(other) != self.slot(at) || self.charges[other].ask != Ask::Exactly {
                continue;
            }
            let first = self.first(other);
            let pays = self.readings[first].admits || self.charges[other].mode == Mode::Soft;
            if first == this || (first < this && pays && !is_hold) {
                charge.units = charge.units.saturating_add(self.tick_charge(other).units);
            }
        }
        if is_hold {
            charge.units = charge.units.min(1);
        }
        charge
    }
}
