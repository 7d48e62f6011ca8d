//! The charges of a claim on keys that have no counter, in shards that are full.
//!
//! A place is made for each of them if possible. Otherwise the charge is counted in the coarse counter of its rule, or
//! refused if that is its rule's policy: a key must not pass uncounted because others have filled the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::algorithm::{Hold, Holds, TickCharge};
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, CounterState, Mode, OnFailure, Reading, Settlement, Source, Span, StateSlot,
    Timestamp, Wait,
};

use super::LockedShards;
use super::hash::KeyHash;
use crate::coarse::CoarseCounters;

/// What happens to charges without room, in a whole store.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// Locked after shards.
    coarse: Mutex<CoarseCounters>,
    refused: AtomicU64,
}

/// The charges of a claim that are not settled on counters of their own.
#[derive(Debug, Default)]
pub(super) struct OverflowCharges<'s> {
    coarse: Option<MutexGuard<'s, CoarseCounters>>,
    charges: SmallVec<[(usize, StandIn); 4]>,
}

/// The counter that a charge is settled on instead of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandIn {
    /// The one that keys of this scope share.
    Coarse(u128),
    /// One without room.
    Exhausted,
}

impl Overflow {
    /// The number of charges that were settled on coarse counters, and of those that were refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.coarse().settled(), self.refused.load(Ordering::Relaxed))
    }

    /// Makes room for the charges of a claim whose keys have no counter. Those for which that is not possible get the
    /// state of another counter.
    #[cold]
    pub(super) fn prepare<'s>(
        &'s self,
        claim: &Claim<'_>,
        hashes: &[KeyHash],
        slots: &mut [StateSlot],
        shards: &mut impl LockedShards,
        now: Timestamp,
    ) -> OverflowCharges<'s> {
        let mut overflow = OverflowCharges::default();
        for (at, hash) in hashes.iter().enumerate() {
            let is_repeated = hashes[..at].iter().any(|other| other.key == hash.key);
            if slots[at].index.is_some() || is_repeated {
                continue;
            }
            let same = || (at..hashes.len()).filter(|other| hashes[*other].key == hash.key);
            let writer = same().map(|other| &claim.charges[other]).find(|charge| may_write(charge));
            let scope = claim.charges[at].key.scope();
            if let Some(writer) = writer {
                let shard = shards.shard(*hash);
                if shard.reserve(scope.short(), hashes, now) {
                    continue;
                }
                let is_fact = writer.ask == Ask::Regardless;
                if writer.on_failure != OnFailure::Deny || is_fact {
                    overflow.settle_coarsely(self, claim, at, same(), slots, now);
                }
                if !overflow.charges.iter().any(|(charge, _)| *charge == at) {
                    slots[at] = exhausted(&claim.charges[at], claim, now);
                    overflow.charges.extend(same().map(|other| (other, StandIn::Exhausted)));
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
            } else if self.coarse_contains(&overflow, &claim.charges[at], now) {
                overflow.settle_coarsely(self, claim, at, same(), slots, now);
            }
        }
        overflow
    }

    /// Whether what a key without a counter has used may have been counted in the coarse counter of its rule.
    fn coarse_contains(&self, overflow: &OverflowCharges<'_>, charge: &Charge<'_>, now: Timestamp) -> bool {
        let reads = matches!(charge.ask, Ask::Exactly | Ask::Return { .. });
        reads
            && match &overflow.coarse {
                Some(coarse) => coarse.contains(charge.key.scope(), now),
                None => self.coarse().contains(charge.key.scope(), now),
            }
    }

    fn coarse(&self) -> MutexGuard<'_, CoarseCounters> {
        self.coarse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'s> OverflowCharges<'s> {
    /// Settles the charges of one key on the coarse counter of its scope, unless there are too many of these.
    fn settle_coarsely(
        &mut self,
        overflow: &'s Overflow,
        claim: &Claim<'_>,
        at: usize,
        same: impl Iterator<Item = usize>,
        slots: &mut [StateSlot],
        now: Timestamp,
    ) {
        let scope = claim.charges[at].key.scope();
        let stand_in = StandIn::Coarse(scope.digest());
        let lent = self.charges.iter().find(|(_, other)| *other == stand_in).map(|(charge, _)| *charge);
        if lent.is_none() {
            let Some(slot) = self.coarse.get_or_insert_with(|| overflow.coarse()).lend(scope, now) else { return };
            slots[at] = slot;
        }
        for charge in same {
            if charge != at || lent.is_some() {
                slots[charge] = StateSlot::same_as(lent.unwrap_or(at));
            }
            self.charges.push((charge, stand_in));
        }
    }

    /// Takes the states of other counters out of the slots, and marks the readings.
    #[cold]
    pub(super) fn finish(mut self, claim: &Claim<'_>, slots: &mut [StateSlot], settlement: &mut Settlement) {
        for number in 0..self.charges.len() {
            let (at, stand_in) = self.charges[number];
            let (slot, reading) = (std::mem::take(&mut slots[at]), &mut settlement.readings[at]);
            let is_first = !self.charges[..number].iter().any(|(_, earlier)| *earlier == stand_in);
            match (stand_in, &mut self.coarse) {
                (StandIn::Coarse(_), Some(coarse)) if is_first => {
                    coarse.take_back(claim.charges[at].key.scope(), slot);
                    reading.source = Source::Local;
                }
                (StandIn::Coarse(_), _) => reading.source = Source::Local,
                (StandIn::Exhausted, _) => {
                    let wait = if reading.admits { Wait::None } else { Wait::For(Reading::RETRY_AFTER) };
                    let rest = Reading { taken: 0, remaining: 0, reset_after: Span::ZERO, ..*reading };
                    *reading = Reading { wait, source: Source::Assumed, ..rest };
                }
            }
        }
    }
}

/// Whether a charge on a fresh counter may leave a state to store.
fn may_write(charge: &Charge<'_>) -> bool {
    let holds = charge.limit.algorithm() == Algorithm::Concurrency;
    let fits = if holds { charge.units.min(1) } else { charge.units } <= charge.limit.quota();
    charge.units > 0
        && match charge.ask {
            Ask::Exactly => fits || charge.mode == Mode::Soft,
            Ask::UpTo | Ask::Regardless => true,
            Ask::Return { .. } | Ask::Credit | Ask::Reset => false,
        }
}

/// A counter without room for a charge.
fn exhausted(charge: &Charge<'_>, claim: &Claim<'_>, now: Timestamp) -> StateSlot {
    let limit = charge.limit;
    let tick = limit.period().tick().at(now);
    let mut state = CounterState::Fresh;
    let now = state.advance(limit, tick).now;
    // Nobody's hold, as far as this claim is concerned.
    let by = tollgate_core::ClaimId(!claim.id.0);
    if limit.algorithm() == Algorithm::Concurrency {
        let hold = Hold { by, expires: now + limit.period().ticks() };
        let holds = vec![hold; usize::try_from(limit.amount()).unwrap_or(usize::MAX)];
        state = CounterState::Holds(Box::new(Holds::new(now, holds)));
    } else {
        state.spend(&TickCharge { limit, now, by, units: limit.quota() });
    }
    StateSlot::new(state, Timestamp::default())
}
