//! Where counters live.
//!
//! A [`Store`] does one thing: it settles a claim, atomically. It owns its clock, knows nothing of rules or requests, and
//! answers every claim: what it can't say is a reading with the rule's policy in it, not an error.

use std::future::Future;

use tollgate_core::{Claim, Settlement};

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;

pub use clock::{Clock, ManualClock, SystemClock};
pub use memory::{MemoryConfig, MemoryStats, MemoryStore};

/// Settles claims.
pub trait Store: Send + Sync {
    /// Settles a claim, atomically: all of it or nothing, as seen by every other claim.
    fn settle(&self, claim: &Claim<'_>) -> impl Future<Output = Settlement> + Send;
}

impl<S: Store> Store for &S {
    fn settle(&self, claim: &Claim<'_>) -> impl Future<Output = Settlement> + Send {
        S::settle(self, claim)
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn settle(&self, claim: &Claim<'_>) -> impl Future<Output = Settlement> + Send {
        S::settle(self, claim)
    }
}
