//! What is sent to another region.

use std::sync::Arc;

use smallvec::smallvec;
use tollgate_core::{Ask, Charge, Claim, ClaimId, Key, Mode, OnFailure, RegionId, Shortcuts, Timestamp};

use super::waiting::{DebitTarget, HasTarget, WaitingUnits};
use crate::clock::Steady;
use crate::sharded::ShardId;

/// A debit to send, or units to give back. It is sent at most once.
#[derive(Debug)]
pub struct DebitMessage {
    pub(super) target: Arc<DebitTarget>,
    pub(super) units: u64,
    pub(super) what: What,
    /// When the first of the units was taken, or when they were given back.
    pub(super) since: Steady,
    /// The shard in whose queue it was.
    pub(super) shard: ShardId,
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) enum What {
    Debit(WaitingUnits),
    Return { taken_at: Timestamp },
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The other region counts it.
    Done,
    /// It certainly does not. The message waits again.
    NotSent,
    /// It may or may not. The message is not repeated.
    Unsure,
}

impl DebitMessage {
    /// The claim to settle in a region.
    pub fn claim(&self, region: RegionId, id: ClaimId) -> Claim<'_> {
        let ask = match self.what {
            What::Debit(_) => Ask::Regardless,
            What::Return { taken_at } => Ask::Return { taken_at },
        };
        let charge = Charge {
            key: self.key(region),
            limit: &self.target.limit,
            ask,
            units: self.units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Allow,
            shortcuts: Shortcuts::None,
        };
        Claim { id, charges: smallvec![charge], once: None, timeout: None }
    }

    /// Its counter in a region.
    pub(super) fn key(&self, region: RegionId) -> Key<'_> {
        self.target.key().in_region(region)
    }

    pub(super) fn is_return(&self) -> bool {
        matches!(self.what, What::Return { .. })
    }

    /// Whether it gives back what was taken so long ago that nothing of it can still count.
    pub(super) fn is_over(&self, at: Timestamp) -> bool {
        let What::Return { taken_at } = self.what else { return false };
        let limit = &self.target.limit;
        let counts_for = limit.period().span().as_micros().max(limit.refill_time().as_micros()).saturating_mul(2);
        at.since(taken_at).as_micros() > counts_for
    }

    #[cfg(test)]
    pub(super) fn units(&self) -> u64 {
        self.units
    }
}

impl HasTarget for DebitMessage {
    fn target(&self) -> &DebitTarget {
        &self.target
    }
}
