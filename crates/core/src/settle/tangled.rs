//! Claims whose charges meet: on one key, or because they reset, give back, credit, debit or lease as well as ask.

use smallvec::SmallVec;

use super::{Reading, Settlement, Slot, Vote};
use crate::algorithm::Asked;
use crate::claim::{Ask, Charge, ClaimId, Mode};
use crate::limit::Algorithm;
use crate::time::Timestamp;

/// Settles such a claim: facts first, then the vote, then who pays, then leases.
pub(super) fn settle(by: ClaimId, charges: &[Charge<'_>], slots: &mut [Slot], settlement: &mut Settlement) {
    let Settlement { readings, at: now, .. } = settlement;
    readings.resize(charges.len(), Reading::NOTHING);
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
        settling.let_go();
    }
}

/// A settlement under way. The readings fill up as it goes.
struct Settling<'s, 'a> {
    by: ClaimId,
    charges: &'s [Charge<'a>],
    slots: &'s mut [Slot],
    readings: &'s mut [Reading],
}

impl<'a> Settling<'_, 'a> {
    /// The place of the slot that counts for a charge.
    fn slot(&self, at: usize) -> usize {
        self.slots[at].same_as.map_or(at, usize::from)
    }

    fn asked(&self, at: usize) -> Asked<'a> {
        self.slots[self.slot(at)].asked(&self.charges[at], self.by)
    }

    /// The first charge that is one with this one: same key, same ask, same mode.
    fn first(&self, at: usize) -> usize {
        let this = &self.charges[at];
        let same = |other: &usize| {
            let charge = &self.charges[*other];
            self.slot(*other) == self.slot(at) && charge.ask == this.ask && charge.mode == this.mode
        };
        (0..at).find(same).unwrap_or(at)
    }

    /// What is forgotten, of which the first charge on a key is told; whether something is.
    fn reset(&mut self, now: Timestamp) -> bool {
        let resets = self.asking(Ask::Reset);
        for at in &resets {
            let slot = self.slot(*at);
            self.readings[*at].taken = self.slots[slot].reset(self.charges[*at].limit, now);
        }
        !resets.is_empty()
    }

    /// Counters that were reset and count nothing since leave nothing behind.
    fn let_go(&mut self) {
        for at in self.asking(Ask::Reset) {
            let slot = self.slot(at);
            self.slots[slot].let_go(self.charges[at].limit);
        }
    }

    /// What is given back. Charges that are one are given back as one, and share that in their order.
    fn give_back(&mut self) {
        for at in 0..self.charges.len() {
            let Ask::Return { taken_at } = self.charges[at].ask else { continue };
            if self.first(at) != at {
                continue;
            }
            let ones: SmallVec<[usize; 4]> =
                (at..self.charges.len()).filter(|other| self.first(*other) == at).collect();
            let mut asked = self.asked(at);
            asked.units = ones.iter().fold(0, |units, one| units.saturating_add(self.asked(*one).units));
            let slot = self.slot(at);
            let slot = &mut self.slots[slot];
            let mut back = slot.state.give_back(&asked, asked.limit.period().tick().at(taken_at));
            slot.changed |= back > 0;
            for one in ones {
                self.readings[one].taken = back.min(self.asked(one).units);
                back -= self.readings[one].taken;
            }
        }
    }

    /// What is given back whenever it was taken.
    fn credit(&mut self) {
        for at in self.asking(Ask::Credit) {
            let (asked, slot) = (self.asked(at), self.slot(at));
            let slot = &mut self.slots[slot];
            self.readings[at].taken = slot.state.credit(&asked);
            slot.changed |= self.readings[at].taken > 0;
        }
    }

    /// What was spent elsewhere.
    fn debit(&mut self) {
        for at in self.asking(Ask::Regardless) {
            let (asked, slot) = (self.asked(at), self.slot(at));
            self.readings[at].taken = self.slots[slot].spend(&asked);
        }
    }

    fn vote(&mut self) -> bool {
        let mut vote = Vote::default();
        for at in self.asking(Ask::Exactly) {
            let admits = self.slots[self.slot(at)].state.admits(&self.needed(at));
            self.readings[at].admits = admits;
            vote.count(Ask::Exactly, self.charges[at].mode, admits);
        }
        vote.passes()
    }

    fn pay(&mut self) {
        for at in self.asking(Ask::Exactly) {
            let (asked, slot) = (self.asked(at), self.slot(at));
            self.slots[slot].pay(&asked, self.charges[at].mode, &mut self.readings[at]);
        }
    }

    fn lease(&mut self) {
        for at in self.asking(Ask::UpTo) {
            let (asked, slot) = (self.asked(at), self.slot(at));
            let slot = &mut self.slots[slot];
            let units = asked.units.min(slot.state.available(asked.limit, asked.now).unwrap_or(0));
            self.readings[at].taken = slot.spend(&Asked { units, ..asked });
        }
    }

    fn read(&mut self, now: Timestamp) {
        for at in 0..self.charges.len() {
            let (needed, slot) = (self.needed(at), self.slot(at));
            self.slots[slot].read(&needed, now, &mut self.readings[at]);
        }
    }

    /// The charges that ask for this.
    fn asking(&self, ask: Ask) -> SmallVec<[usize; 8]> {
        (0..self.charges.len()).filter(|at| self.charges[*at].ask == ask).collect()
    }

    /// What there must be room for. Charges with the same key and mode are one with the sum; those with the same key and another
    /// mode come after each other, each finding what the ones before it will pay. One claim holds one slot, however often it asks.
    fn needed(&self, at: usize) -> Asked<'a> {
        let mut asked = self.asked(at);
        let is_hold = asked.limit.algorithm() == Algorithm::Concurrency;
        let this = self.first(at);
        for other in 0..self.charges.len() {
            if other == at || self.slot(other) != self.slot(at) || self.charges[other].ask != Ask::Exactly {
                continue;
            }
            let first = self.first(other);
            let pays = self.readings[first].admits || self.charges[other].mode == Mode::Soft;
            if first == this || (first < this && pays && !is_hold) {
                asked.units = asked.units.saturating_add(self.asked(other).units);
            }
        }
        if is_hold {
            asked.units = asked.units.min(1);
        }
        asked
    }
}
