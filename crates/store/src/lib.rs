//! Stores: where counters live.
//!
//! A [`Store`] settles claims, atomically. It owns its clock and does not depend on rules or requests. It answers
//! every claim: if it is unavailable, the reading has the rule's policy instead of an error.

use std::future::Future;

use tollgate_core::{Claim, Key, Reading, Replay, Settlement, Source, Timestamp};

pub mod clock;
mod coarse;
#[cfg(feature = "conformance")]
pub mod conformance;
mod counters;
pub mod debits;
pub mod deny_cache;
pub mod guarded;
mod histogram;
mod join;
pub mod key_privacy;
pub mod leased;
pub mod memory;
pub mod regions;
mod secret;
pub mod sharded;
pub mod summed;

pub use clock::{Clock, ManualClock, Steady, Stopwatch, StopwatchMark, SystemClock};
pub use counters::{
    AgreeFuture, BulletinEntry, BulletinFuture, Counters, InRegion, ReadyFuture, SettleFuture, SharedStatus,
    SharedStore,
};
pub use debits::{Courier, DebitConfig, DebitOutbox, DebitStatus, UnitCounts};
pub use deny_cache::DenyCache;
pub use guarded::{Circuit, GuardConfig, GuardStatus, Guarded, Level, SavedGuard, SavedGuardError, ShardStatus};
pub use histogram::Durations;
pub use join::join_all;
pub use key_privacy::{KeyPrivacy, NameForm, PrivacySetting};
pub use leased::{LeaseConfig, LeaseCounts, LeaseStatus, Leased, PurgedLeases};
pub use memory::{MemoryConfig, MemoryStats, MemoryStore, RestoreReport, SnapshotError, SnapshotStats};
pub use regions::{OtherRegion, Regions};
pub use summed::{Summed, SummedCounter, SummedStatus};

/// Settles claims.
pub trait Store: Send + Sync {
    /// Settles a claim atomically with respect to all other claims. The answer overwrites `settlement`; it is written
    /// in place because every request takes this path.
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send;

    /// Like [`settle_into`](Store::settle_into), but returns the answer.
    fn settle(&self, claim: &Claim<'_>) -> impl Future<Output = Settlement> + Send {
        async {
            let mut settlement = Settlement::default();
            self.settle_into(claim, &mut settlement).await;
            settlement
        }
    }

    /// Whether the store never waits. Its futures are then ready at the first poll, and a caller can poll them
    /// without an executor.
    fn never_waits(&self) -> bool {
        false
    }

    /// Whether a refusal by this counter may end before its wait is over, because the store takes units from it that it
    /// gives back a moment later.
    fn may_be_transient(&self, _key: &Key<'_>) -> bool {
        false
    }

    /// Answers without settling: each charge by its policy, marked with this source. For callers with more claims
    /// than they can settle, and for failures during a settlement.
    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        settlement.readings.clear();
        settlement.readings.extend(claim.charges.iter().map(|charge| Reading::assumed(charge, source)));
        settlement.at = Timestamp::default();
        settlement.replay = Replay::First;
    }
}

impl<S: Store> Store for &S {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        S::settle_into(self, claim, settlement)
    }

    fn never_waits(&self) -> bool {
        S::never_waits(self)
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        S::may_be_transient(self, key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        S::assume(self, claim, source, settlement);
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        S::settle_into(self, claim, settlement)
    }

    fn never_waits(&self) -> bool {
        S::never_waits(self)
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        S::may_be_transient(self, key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        S::assume(self, claim, source, settlement);
    }
}
