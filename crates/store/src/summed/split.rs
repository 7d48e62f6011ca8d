//! A claim that is settled partly here and partly by the inner store.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Once, Reading, Replay, Settlement, Source, Span, Timestamp, Vote, Wait};

use super::SummedStep;
use super::tables::{SettledHere, Tables};
use crate::clock::Steady;

/// The part of a claim for the inner store, and what is to be done with its answer.
///
/// What the claim took here is given back if it is dropped before the end, because the caller is gone.
#[derive(Debug)]
pub struct SplitClaim<'t, 'a> {
    tables: &'t Tables,
    rest: Claim<'a>,
    /// The charges that were settled here.
    here: Claim<'a>,
    settled: SettledHere,
    readings: SmallVec<[Reading; 4]>,
    /// Whether each charge of the claim was settled here, in order.
    is_here: SmallVec<[bool; 4]>,
    /// Whether the part here passes.
    passes: bool,
    at: Timestamp,
    is_ended: bool,
}

/// Settles what is counted here. Also returns whether a counter is new.
pub(super) fn begin<'t, 'a>(
    tables: &'t Tables,
    claim: &Claim<'a>,
    now: Timestamp,
    steady: Steady,
    settlement: &mut Settlement,
) -> (SummedStep<'t, 'a>, bool) {
    let is_here = tables.places(claim);
    if !is_here.contains(&true) {
        return (SummedStep::Whole, false);
    }
    let is_renewal = claim.once.as_ref().is_some_and(|once| once.keep == Span::ZERO);
    let is_fact = |charge: &Charge<'_>| matches!(charge.ask, Ask::Return { .. });
    // A release is idempotent by the id of its claim, and so is a renewal: they need no record.
    let needs_record = claim.once.is_some() && !is_renewal && !claim.charges.iter().all(is_fact);
    if !is_here.contains(&false) && !needs_record {
        let has_new = tables.settle(claim, is_renewal, now, steady, settlement).has_new;
        return (SummedStep::Answered, has_new);
    }
    let here = part(claim, &is_here, true);
    let settled = tables.settle(&here, is_renewal, now, steady, settlement);
    let (has_new, passes) = (settled.has_new, passes(&here, &settlement.readings));
    let mut rest = Claim { once: claim.once.clone(), timeout: claim.timeout, ..part(claim, &is_here, false) };
    if !passes {
        let is_request = |charge: &Charge<'_>| matches!(charge.ask, Ask::Exactly | Ask::UpTo);
        if rest.once.is_none() && rest.charges.iter().all(is_request) {
            refuse(claim, &is_here, settlement);
            return (SummedStep::Answered, has_new);
        }
        // Facts are recorded, and a claim that was settled before has its first answer. Nothing else is taken.
        rest.charges.iter_mut().filter(|charge| is_request(charge)).for_each(|charge| charge.units = 0);
    }
    let takes_nothing = rest.charges.is_empty() && settlement.readings.iter().all(|reading| reading.taken == 0);
    if !passes || takes_nothing {
        // Only a claim that took something is recorded.
        rest.once = rest.once.map(|once| Once { keep: Span::ZERO, ..once });
    }
    let readings = settlement.readings.clone();
    let split = SplitClaim { tables, rest, here, settled, readings, is_here, passes, at: now, is_ended: false };
    (SummedStep::Split(Box::new(split)), has_new)
}

impl<'a> SplitClaim<'_, 'a> {
    /// The claim that the inner store is to settle.
    pub fn rest(&self) -> &Claim<'a> {
        &self.rest
    }

    /// Ends the claim with the inner store's answer.
    pub fn end(mut self: Box<Self>, answer: &Settlement, settlement: &mut Settlement) {
        self.is_ended = true;
        let is_first = answer.replay == Replay::First;
        let stays = is_first && self.passes && passes(&self.rest, &answer.readings);
        if !stays {
            self.give_back();
        }
        // Receipts return units of the inner store at its time.
        settlement.at = if is_first && self.rest.charges.is_empty() { self.at } else { answer.at };
        settlement.replay = answer.replay;
        settlement.readings.clear();
        let is_same = match answer.replay {
            Replay::First | Replay::Conflict => true,
            Replay::Again { terms, .. } => self.rest.once.as_ref().is_some_and(|once| once.terms == terms),
        };
        if !is_same || answer.readings.len() != self.rest.charges.len() {
            // The answer of a claim by other rules.
            settlement.readings.extend(answer.readings.iter().copied());
            return;
        }
        let (mut here, mut rest) = (self.readings.iter(), answer.readings.iter());
        for is_here in &self.is_here {
            let reading = if *is_here { here.next() } else { rest.next() };
            settlement.readings.extend(reading.copied());
        }
        match answer.replay {
            Replay::First => {}
            Replay::Conflict => settlement.readings.iter_mut().for_each(|reading| reading.admits = false),
            // The first claim took it, here or on another server.
            Replay::Again { passed, .. } => self.repeat(passed, settlement),
        }
    }

    /// Completes the readings of a claim that was settled before.
    fn repeat(&self, passed: bool, settlement: &mut Settlement) {
        let all = settlement.readings.iter_mut().zip(&self.is_here);
        let here = all.filter(|(_, is_here)| **is_here).map(|(reading, _)| reading);
        for (reading, charge) in here.zip(&self.here.charges) {
            if !passed || charge.units == 0 {
                continue;
            }
            match charge.ask {
                Ask::Exactly => (reading.admits, reading.taken, reading.wait) = (true, 1, Wait::None),
                Ask::Return { .. } => (reading.taken, reading.source) = (1, Source::Summed),
                _ => {}
            }
        }
    }

    /// Returns what the claim took here.
    fn give_back(&mut self) {
        let asks = |ask| matches!(ask, Ask::Exactly | Ask::UpTo);
        let (here, settled, readings) = (&self.here, &self.settled, &self.readings);
        let is_taken = |at: usize| {
            let charge: Option<&Charge<'_>> = here.charges.get(at);
            charge.is_some_and(|charge| asks(charge.ask)) && readings[at].taken > 0 && !settled.held_before[at]
        };
        self.tables.give_back(here, is_taken, self.at);
        let taken: SmallVec<[bool; 4]> = (0..self.readings.len()).map(is_taken).collect();
        for (reading, _) in self.readings.iter_mut().zip(taken).filter(|(_, taken)| *taken) {
            (reading.remaining, reading.taken) = (reading.remaining.saturating_add(1), 0);
        }
    }
}

impl Drop for SplitClaim<'_, '_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.give_back();
        }
    }
}

/// The charges that are settled here, or the others.
fn part<'a>(claim: &Claim<'a>, is_here: &[bool], here: bool) -> Claim<'a> {
    let charges = claim.charges.iter().zip(is_here).filter(|(_, is_here)| **is_here == here);
    Claim { id: claim.id, charges: charges.map(|(charge, _)| charge.clone()).collect(), once: None, timeout: None }
}

fn passes(claim: &Claim<'_>, readings: &[Reading]) -> bool {
    let mut vote = Vote::default();
    for (charge, reading) in claim.charges.iter().zip(readings) {
        vote.count(charge.ask, charge.mode, reading.admits);
    }
    vote.passes()
}

/// Completes the answer to a claim that is refused here. The readings of the other counters are unknown and do not matter.
fn refuse(claim: &Claim<'_>, is_here: &[bool], settlement: &mut Settlement) {
    let here = std::mem::take(&mut settlement.readings);
    let mut here = here.into_iter();
    settlement.readings = claim
        .charges
        .iter()
        .zip(is_here)
        .map(|(charge, is_here)| {
            let known = if *is_here { here.next() } else { None };
            known.unwrap_or_else(|| Reading::unread(charge, Source::Summed))
        })
        .collect();
}
