//! The answers to charges that no shard answered: by their policies, in local memory where the policy allows it.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Mode, OnFailure, Reading, Replay, Settlement, Source, Span, Timestamp, Vote, Wait,
};

use super::Guarded;
use super::status::UnavailableReason;
use crate::clock::Clock;
use crate::sharded::{ShardId, Sharded};

/// Indices of some of a claim's charges.
pub(super) type Charges = SmallVec<[usize; 4]>;

/// The charges of a claim that no shard answered.
#[derive(Debug, Default)]
pub(super) struct UnansweredCharges {
    /// Why the first of them has no answer.
    pub(super) reason: Option<UnavailableReason>,
    /// The charges that were counted in local memory.
    local: Charges,
    /// Enforced charges with units that admit although they were not counted.
    uncounted: Charges,
    /// The time of the local settlement.
    at: Timestamp,
}

/// Why and for how long there is no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unavailable {
    pub(super) reason: UnavailableReason,
    /// The source of the readings, if it is not the store that is unavailable.
    pub(super) source: Option<Source>,
    /// When to retry.
    pub(super) wait: Span,
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Answers a whole claim without the store. The readings are marked with the source, if there is one.
    pub(super) fn answer_by_policy(
        &self,
        claim: &Claim<'_>,
        reason: UnavailableReason,
        source: Option<Source>,
        shard: Option<ShardId>,
        settlement: &mut Settlement,
    ) {
        let now = self.clock.now();
        let unavailable = Unavailable { reason, source, wait: self.retry_after(shard, now) };
        let mut unanswered = UnansweredCharges::default();
        prepare(claim, now, settlement);
        let all: Charges = (0..claim.charges.len()).collect();
        self.read_by_policy(claim, &all, unavailable, now, &mut unanswered, &mut settlement.readings);
        self.decide(claim, &mut unanswered, &mut settlement.readings);
    }

    /// The wait for a shard that does not answer: until its next probe, but at least [`Reading::RETRY_AFTER`].
    pub(super) fn retry_after(&self, shard: Option<ShardId>, now: Timestamp) -> Span {
        let open = shard.map(|shard| self.breakers.for_shard(shard)).filter(|breaker| !breaker.is_closed());
        open.map_or(Span::ZERO, |breaker| breaker.cool_down_left(now)).max(Reading::RETRY_AFTER)
    }

    /// Reads these charges by their policies.
    pub(super) fn read_by_policy(
        &self,
        claim: &Claim<'_>,
        charges: &[usize],
        unavailable: Unavailable,
        now: Timestamp,
        unanswered: &mut UnansweredCharges,
        readings: &mut [Reading],
    ) {
        if charges.is_empty() {
            return;
        }
        unanswered.reason.get_or_insert(unavailable.reason);
        unanswered.at = now;
        let refused: SmallVec<[Option<Reading>; 4]> =
            charges.iter().map(|at| self.known_refusal(&claim.charges[*at], now)).collect();
        let is_counted =
            |(at, refused): &(&usize, &Option<Reading>)| refused.is_none() && counts_locally(&claim.charges[**at]);
        let local: Charges = charges.iter().zip(&refused).filter(is_counted).map(|(at, _)| *at).collect();
        let mut counted = match local.is_empty() {
            true => SmallVec::new(),
            false => self.local.settle(&part_of(claim, &local), self.replicas(), now),
        }
        .into_iter();
        for (at, refused) in charges.iter().zip(refused) {
            let charge = &claim.charges[*at];
            let found = if local.contains(at) { counted.next().flatten() } else { None };
            readings[*at] = match refused.or(found) {
                Some(reading) => Reading { source: unavailable.source.unwrap_or(Source::Local), ..reading },
                None => assumed(charge, unavailable),
            };
            if found.is_some() {
                unanswered.local.push(*at);
            } else if readings[*at].admits && is_enforced(charge) {
                unanswered.uncounted.push(*at);
            }
        }
    }

    /// The refusal of a charge by the store that still holds. It is an answer, so a policy that admits does not apply.
    fn known_refusal(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Reading> {
        let is_admitted = is_enforced(charge) && charge.on_failure != OnFailure::Deny;
        if is_admitted { self.local.refusal(charge, now) } else { None }
    }

    /// Counts the votes, and the requests that pass uncounted. If the claim does not pass, its units in local memory
    /// are given back.
    pub(super) fn decide(
        &self,
        claim: &Claim<'_>,
        unanswered: &mut UnansweredCharges,
        readings: &mut [Reading],
    ) -> bool {
        let mut passes = vote(claim, readings);
        if passes && !unanswered.uncounted.is_empty() {
            passes = self.last_resort.as_ref().is_none_or(|last_resort| last_resort.try_take(unanswered.at));
            if passes {
                self.uncounted_at.store(unanswered.at.as_micros(), Ordering::Relaxed);
            } else {
                for at in &unanswered.uncounted {
                    let wait = Wait::For(Reading::RETRY_AFTER);
                    readings[*at] = Reading { admits: false, remaining: 0, wait, ..readings[*at] };
                }
            }
        }
        match (passes, unanswered.reason) {
            (true, Some(reason)) => self.fail_open.count(reason),
            (true, None) => {}
            (false, _) => self.return_local(claim, unanswered, readings),
        }
        passes
    }

    /// Gives back the units that a claim took in local memory.
    pub(super) fn return_local(&self, claim: &Claim<'_>, unanswered: &mut UnansweredCharges, readings: &mut [Reading]) {
        let (took, returns) = returns_of(claim, &unanswered.local, readings, unanswered.at);
        unanswered.local.clear();
        if took.is_empty() {
            return;
        }
        let returned = self.local.settle(&returns, self.replicas(), unanswered.at);
        apply_returns(claim, &took, returned, readings);
    }

    /// Drops the local counters that the store has just reset, with their pending debits.
    #[cold]
    pub(super) fn drop_reset_counters(&self, claim: &Claim<'_>, settlement: &Settlement) {
        if settlement.replay != Replay::First {
            return;
        }
        for (charge, reading) in claim.charges.iter().zip(&settlement.readings) {
            if charge.ask == Ask::Reset && reading.admits && reading.source == Source::Store {
                self.local.remove(&charge.key);
            }
        }
    }

    /// Releases local holds of a claim. The store may not know of them.
    #[cold]
    pub(super) fn release(&self, claim: &Claim<'_>) {
        let holds: Charges = (0..claim.charges.len()).filter(|at| is_release(&claim.charges[*at])).collect();
        self.local.settle(&part_of(claim, &holds), self.replicas(), self.clock.now());
    }
}

/// Resizes the readings for a claim. Every reading is overwritten later.
pub(super) fn prepare(claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().map(|charge| Reading::assumed(charge, Source::Assumed)));
    settlement.at = now;
    settlement.replay = Replay::First;
}

/// Refuses a claim that another caller is settling and has not settled in time.
pub(super) fn refuse_as_pending(claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) {
    settlement.at = now;
    settlement.replay = Replay::First;
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().map(|_| Reading::refusal(Wait::For(Reading::RETRY_AFTER))));
}

/// Some charges of a claim as a claim of their own. Only the enforced ones vote. Whether a charge of mode `AnyOf`
/// refuses is known only when all parts have answered; until then it pays if it has room.
pub(super) fn part_of<'a>(claim: &Claim<'a>, charges: &[usize]) -> Claim<'a> {
    let charges = charges.iter().map(|at| {
        let charge = claim.charges[*at].clone();
        let mode = if charge.mode == Mode::AnyOf { Mode::Shadow } else { charge.mode };
        Charge { mode, ..charge }
    });
    Claim { id: claim.id, charges: charges.collect(), once: None, timeout: claim.timeout }
}

/// The charges that took units, and the claim that gives them back. Recorded facts stay.
pub(super) fn returns_of<'a>(
    claim: &Claim<'a>,
    charges: &[usize],
    readings: &[Reading],
    taken_at: Timestamp,
) -> (Charges, Claim<'a>) {
    let asks = |at: &usize| matches!(claim.charges[*at].ask, Ask::Exactly | Ask::UpTo);
    let took: Charges = charges.iter().copied().filter(|at| asks(at) && readings[*at].taken > 0).collect();
    let mut part = part_of(claim, &took);
    for (charge, at) in part.charges.iter_mut().zip(&took) {
        (charge.ask, charge.units) = (Ask::Return { taken_at }, readings[*at].taken);
    }
    (took, part)
}

/// Updates the readings after units were given back, with the state of the counters where it is known.
pub(super) fn apply_returns(
    claim: &Claim<'_>,
    took: &[usize],
    returned: impl IntoIterator<Item = Option<Reading>>,
    readings: &mut [Reading],
) {
    for at in took {
        (readings[*at].taken, readings[*at].delay) = (0, Span::ZERO);
    }
    let known = took.iter().zip(returned).filter_map(|(at, returned)| Some((&claim.charges[*at].key, returned?)));
    for (key, returned) in known {
        let same = claim.charges.iter().zip(&mut *readings).filter(|(charge, _)| charge.key == *key);
        for (_, reading) in same {
            (reading.remaining, reading.reset_after) = (returned.remaining, returned.reset_after);
        }
    }
}

/// Whether a claim with these readings passes.
pub(super) fn vote(claim: &Claim<'_>, readings: &[Reading]) -> bool {
    let mut vote = Vote::default();
    for (charge, reading) in claim.charges.iter().zip(readings) {
        vote.count(charge.ask, charge.mode, reading.admits);
    }
    vote.passes()
}

/// The reading of a charge that is not counted.
fn assumed(charge: &Charge<'_>, unavailable: Unavailable) -> Reading {
    let reading = Reading::assumed(charge, unavailable.source.unwrap_or(Source::Assumed));
    match charge.ask {
        // Facts need no room.
        Ask::Regardless | Ask::Return { .. } => Reading { admits: true, wait: Wait::None, ..reading },
        _ if !reading.admits => Reading { wait: Wait::For(unavailable.wait), ..reading },
        _ => reading,
    }
}

/// Whether a charge releases a hold.
pub(super) fn is_release(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Return { .. }) && charge.limit.algorithm() == Algorithm::Concurrency
}

/// Facts are recorded whatever the policy, because they are sent to the store later. Orders are carried out now or
/// not at all; the reading then says that nothing was done.
fn counts_locally(charge: &Charge<'_>) -> bool {
    match charge.ask {
        Ask::Exactly | Ask::UpTo => charge.on_failure == OnFailure::Local,
        Ask::Regardless | Ask::Return { .. } => true,
        Ask::Credit | Ask::Reset => false,
    }
}

fn is_enforced(charge: &Charge<'_>) -> bool {
    charge.ask == Ask::Exactly && charge.units > 0 && matches!(charge.mode, Mode::Enforce | Mode::AnyOf)
}
