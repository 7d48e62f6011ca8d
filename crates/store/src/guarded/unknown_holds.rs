//! Holds that a claim of unknown outcome may have taken.
//!
//! A caller whose claim was not answered gets a decision by policy, and cannot release a hold that it does not know of. If the policy counted no hold for it either, or if the caller went away before the answer, the hold is released
//! through the outbox, and does not stay until it expires.
//!
//! Only claims with generated ids: a caller that chose the id, or that may repeat the claim under its idempotency key,
//! gets the same hold again and can release it.

use tollgate_core::{Algorithm, Ask, Charge, Claim, Reading};

use super::Guarded;
use super::deferred::DeferredClaim;
use super::policy::{self, Charges};
use crate::clock::Clock;
use crate::sharded::{Failure, Sharded};

/// A claim that is being settled in one location. If the caller goes away meanwhile, its holds are released.
pub(super) struct UnknownHolds<'g, 'a, S: Sharded, C: Clock> {
    guard: &'g Guarded<S, C>,
    claim: &'g Claim<'a>,
    /// Whether the claim may have taken holds.
    is_unknown: bool,
}

impl<'g, 'a, S: Sharded, C: Clock> UnknownHolds<'g, 'a, S, C> {
    pub(super) fn new(guard: &'g Guarded<S, C>, claim: &'g Claim<'a>) -> Self {
        UnknownHolds { guard, claim, is_unknown: claim.charges.iter().any(is_hold) }
    }

    /// The claim was answered, or failed.
    pub(super) fn end(mut self, result: &Result<(), Failure>) -> bool {
        let was_unknown = std::mem::take(&mut self.is_unknown);
        was_unknown && result.as_ref().is_err_and(|failure| !failure.is_unsettled())
    }
}

impl<S: Sharded, C: Clock> Drop for UnknownHolds<'_, '_, S, C> {
    fn drop(&mut self) {
        if self.is_unknown {
            self.guard.release_unknown(self.claim, 0..self.claim.charges.len(), &[]);
        }
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Releases the holds that these charges of a claim may have taken in one location. Not those that the caller knows
    /// of, by a reading: the caller releases them.
    #[cold]
    pub(super) fn release_unknown(
        &self,
        claim: &Claim<'_>,
        charges: impl IntoIterator<Item = usize>,
        readings: &[Reading],
    ) {
        if claim.once.is_some() || !claim.id.is_generated() {
            return;
        }
        let is_known = |at: usize| readings.get(at).is_some_and(|reading| reading.taken > 0);
        let holds: Charges = charges.into_iter().filter(|at| is_hold(&claim.charges[*at]) && !is_known(*at)).collect();
        if holds.is_empty() {
            return;
        }
        let now = self.clock.now();
        let mut release = policy::part_of(claim, &holds);
        release.charges.iter_mut().for_each(|charge| charge.ask = Ask::Return { taken_at: now });
        self.outbox.push(DeferredClaim::release(&release, now));
    }
}

/// Whether a charge takes a hold.
fn is_hold(charge: &Charge<'_>) -> bool {
    charge.limit.algorithm() == Algorithm::Concurrency
        && charge.units > 0
        && matches!(charge.ask, Ask::Exactly | Ask::UpTo)
}
