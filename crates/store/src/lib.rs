//! Where counters live.
//!
//! A [`Store`] does one thing: it settles a claim, atomically. It owns its clock, knows nothing of rules or requests, and
//! answers every claim: what it can't say is a reading with the rule's policy in it, not an error.

use std::future::Future;

use tollgate_core::{Claim, Reading, Replay, Settlement, Source, Timestamp};

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "redis")]
pub mod guarded;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod remembered;
mod secret;
#[cfg(feature = "redis")]
pub mod sharded;
#[cfg(feature = "redis")]
mod tending;

pub use clock::{Clock, ManualClock, Pressed, Stopwatch, SystemClock};
#[cfg(feature = "redis")]
pub use guarded::{Circuit, GuardConfig, GuardStatus, Guarded, Level, ShardStatus};
pub use memory::{MemoryConfig, MemoryStats, MemoryStore, Restored, SnapshotError, SnapshotStats};
#[cfg(feature = "redis")]
pub use remembered::Remembered;
#[cfg(feature = "redis")]
pub use tending::Tending;

/// Settles claims.
pub trait Store: Send + Sync {
    /// Settles a claim, atomically: all of it or nothing, as seen by every other claim. The answer replaces what `settlement`
    /// held: it is written where it will be read, since this is the path of every request.
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send;

    /// The same, with the answer as a value.
    fn settle(&self, claim: &Claim<'_>) -> impl Future<Output = Settlement> + Send {
        async {
            let mut settlement = Settlement::default();
            self.settle_into(claim, &mut settlement).await;
            settlement
        }
    }

    /// Whether it never waits: then its futures are ready at the first poll, and who has no use for a future need not make one.
    /// What is [`Immediate`] says so to the compiler; this says it of a store whose type is not known.
    fn never_waits(&self) -> bool {
        false
    }

    /// Answers without settling: what each charge reads when nobody looks, by its policy and marked with this source. For those
    /// who have more claims than they can settle, and for when settling went wrong.
    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        settlement.readings.clear();
        settlement.readings.extend(claim.charges.iter().map(|charge| Reading::assumed(charge, source)));
        settlement.at = Timestamp::default();
        settlement.replay = Replay::First;
    }
}

/// A store that never waits: its futures are ready at the first poll.
pub trait Immediate: Store {}

impl<S: Immediate> Immediate for &S {}
impl<S: Immediate> Immediate for std::sync::Arc<S> {}

impl<S: Store> Store for &S {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        S::settle_into(self, claim, settlement)
    }

    fn never_waits(&self) -> bool {
        S::never_waits(self)
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

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        S::assume(self, claim, source, settlement);
    }
}
