//! What charges read that no shard answers for.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Mode, OnFailure, Reading, Replay, Settlement, Source, Span, Timestamp, Vote, Wait,
};

use super::Guarded;
use super::status::Why;
use crate::clock::Clock;
use crate::sharded::{ShardId, Sharded};

/// Some charges of a claim, by their places in it.
pub(super) type Charges = SmallVec<[usize; 4]>;

/// The charges of a claim that no shard answered for.
#[derive(Debug, Default)]
pub(super) struct Absent {
    /// Why the first of them has no answer.
    pub(super) why: Option<Why>,
    /// Those that were counted in local memory.
    local: Charges,
    /// Those that are enforced, have units, and admit although nobody counted them.
    uncounted: Charges,
    /// When local memory was asked.
    at: Timestamp,
}

/// Why and for how long there is no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) why: Why,
    /// Marks the readings, where it is not the store that is silent.
    pub(super) source: Option<Source>,
    /// When to come back.
    pub(super) wait: Span,
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Answers a whole claim without the store.
    pub(super) fn do_without(&self, claim: &Claim<'_>, why: Why, shard: Option<ShardId>, settlement: &mut Settlement) {
        self.answer(claim, why, None, shard, settlement);
    }

    /// Answers a whole claim without the store, with readings that are marked with a source.
    pub(super) fn answer(
        &self,
        claim: &Claim<'_>,
        why: Why,
        source: Option<Source>,
        shard: Option<ShardId>,
        settlement: &mut Settlement,
    ) {
        let now = self.clock.now();
        let silence = Silence { why, source, wait: self.next_try(shard, now) };
        let mut absent = Absent::default();
        prepare(claim, now, settlement);
        let all: Charges = (0..claim.charges.len()).collect();
        self.stand_in(claim, &all, silence, now, &mut absent, &mut settlement.readings);
        self.decide(claim, &mut absent, &mut settlement.readings);
    }

    /// When to come back to a shard that does not answer: after its next probe, and not at once.
    pub(super) fn next_try(&self, shard: Option<ShardId>, now: Timestamp) -> Span {
        let rests = shard.map(|shard| self.breakers.of(shard)).filter(|breaker| !breaker.is_closed());
        rests.map_or(Span::ZERO, |breaker| breaker.rests_for(now)).max(Reading::TRY_AGAIN)
    }

    /// Reads these charges by their policies.
    pub(super) fn stand_in(
        &self,
        claim: &Claim<'_>,
        charges: &[usize],
        silence: Silence,
        now: Timestamp,
        absent: &mut Absent,
        readings: &mut [Reading],
    ) {
        if charges.is_empty() {
            return;
        }
        absent.why.get_or_insert(silence.why);
        absent.at = now;
        let local: Charges = charges.iter().copied().filter(|at| counts_locally(&claim.charges[*at])).collect();
        let mut counted = match local.is_empty() {
            true => SmallVec::new(),
            false => self.local.settle(&part_of(claim, &local), self.replicas.load(Ordering::Relaxed), now),
        }
        .into_iter();
        for at in charges {
            let charge = &claim.charges[*at];
            let found = if local.contains(at) { counted.next().flatten() } else { None };
            readings[*at] = match found {
                Some(reading) => Reading { source: silence.source.unwrap_or(Source::Local), ..reading },
                None => assumed(charge, silence),
            };
            if found.is_some() {
                absent.local.push(*at);
            } else if readings[*at].admits && is_enforced(charge) {
                absent.uncounted.push(*at);
            }
        }
    }

    /// Counts the votes, and what passes uncounted. If the claim does not pass, nothing of it stays in local memory.
    pub(super) fn decide(&self, claim: &Claim<'_>, absent: &mut Absent, readings: &mut [Reading]) -> bool {
        let mut passes = vote(claim, readings);
        if passes && !absent.uncounted.is_empty() {
            passes = self.last_resort.as_ref().is_none_or(|last_resort| last_resort.takes(absent.at));
            if passes {
                self.uncounted_at.store(absent.at.as_micros(), Ordering::Relaxed);
            } else {
                for at in &absent.uncounted {
                    let wait = Wait::For(Reading::TRY_AGAIN);
                    readings[*at] = Reading { admits: false, remaining: 0, wait, ..readings[*at] };
                }
            }
        }
        match (passes, absent.why) {
            (true, Some(why)) => self.fail_open.count(why),
            (true, None) => {}
            (false, _) => self.forget(claim, absent, readings),
        }
        passes
    }

    /// Gives back what a claim took from local memory.
    pub(super) fn forget(&self, claim: &Claim<'_>, absent: &mut Absent, readings: &mut [Reading]) {
        let (took, giving_back) = giving_back(claim, &absent.local, readings, absent.at);
        absent.local.clear();
        if took.is_empty() {
            return;
        }
        let returned = self.local.settle(&giving_back, self.replicas.load(Ordering::Relaxed), absent.at);
        given_back(claim, &took, returned, readings);
    }

    /// Forgets what was counted here of counters that the store has just reset, and was to be told of.
    #[cold]
    pub(super) fn forget_reset(&self, claim: &Claim<'_>, settlement: &Settlement) {
        if settlement.replay != Replay::First {
            return;
        }
        for (charge, reading) in claim.charges.iter().zip(&settlement.readings) {
            if charge.ask == Ask::Reset && reading.admits && reading.source == Source::Store {
                self.local.remove(&charge.key);
            }
        }
    }

    /// Lets go of what is held here under a claim's name, if it gives that back: the store may not know of it.
    #[cold]
    pub(super) fn release(&self, claim: &Claim<'_>) {
        let holds: Charges = (0..claim.charges.len()).filter(|at| is_release(&claim.charges[*at])).collect();
        self.local.settle(&part_of(claim, &holds), self.replicas.load(Ordering::Relaxed), self.clock.now());
    }
}

/// Makes room for a claim's readings. Each will be overwritten.
pub(super) fn prepare(claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().map(|charge| Reading::assumed(charge, Source::Assumed)));
    settlement.at = now;
    settlement.replay = Replay::First;
}

/// Answers a claim that somebody else is settling and has not settled in time.
pub(super) fn refuse_for_now(claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) {
    settlement.at = now;
    settlement.replay = Replay::First;
    refuse(claim, Wait::For(Reading::TRY_AGAIN), settlement);
}

/// Answers a claim whose name another has.
pub(super) fn conflict(claim: &Claim<'_>, settlement: &mut Settlement) {
    settlement.replay = Replay::Conflict;
    refuse(claim, Wait::Forever, settlement);
}

/// Refuses every charge, without a word on its counter.
fn refuse(claim: &Claim<'_>, wait: Wait, settlement: &mut Settlement) {
    let refusal = Reading {
        admits: false,
        taken: 0,
        remaining: 0,
        wait,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    };
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().map(|_| refusal));
}

/// Some charges of a claim as a claim of its own, in which only the enforced ones have a vote: whether one of mode `AnyOf` has
/// room is known when all have answered, so that until then it pays if it has.
pub(super) fn part_of<'a>(claim: &Claim<'a>, charges: &[usize]) -> Claim<'a> {
    let charges = charges.iter().map(|at| {
        let charge = claim.charges[*at].clone();
        let mode = if charge.mode == Mode::AnyOf { Mode::Shadow } else { charge.mode };
        Charge { mode, ..charge }
    });
    Claim { id: claim.id, charges: charges.collect(), once: None, patience: claim.patience }
}

/// What some charges took, and the claim that gives it back. What was recorded as a fact stays.
pub(super) fn giving_back<'a>(
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

/// What was taken was given back: the counters of those charges stand as that says, if it is known.
pub(super) fn given_back(
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

/// What a charge reads that nobody counts.
fn assumed(charge: &Charge<'_>, silence: Silence) -> Reading {
    let reading = Reading::assumed(charge, silence.source.unwrap_or(Source::Assumed));
    match charge.ask {
        // They ask for no room.
        Ask::Regardless | Ask::Return { .. } => Reading { admits: true, wait: Wait::None, ..reading },
        _ if !reading.admits => Reading { wait: Wait::For(silence.wait), ..reading },
        _ => reading,
    }
}

/// Whether a charge gives back a hold.
pub(super) fn is_release(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Return { .. }) && charge.limit.algorithm() == Algorithm::Concurrency
}

/// Facts are kept whatever the policy: the store is told of them later. Orders are done now or not at all, and whoever gave one is told
/// that it was not done.
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
