//! A store that debits in other regions what limits of `region: global` took in this one.
//!
//! Each region counts by itself. What a charge took from the counter here ([`takes`]) waits in an [`outbox`] for each other
//! region, and is sent there as a claim past the limit, at most once. Only what was taken here is sent: what arrives as a
//! debit does not pass through this store. While debits are late or do not arrive, limits are lowered ([`link`]).
//! [`tables`] ties these together, and does no I/O and reads no clock. [`DebitOutbox`] only drives it.

mod courier;
mod link;
mod message;
mod outbox;
mod pace;
mod queue;
mod sender;
mod status;
mod tables;
mod takes;
#[cfg(test)]
mod tests;
mod waiting;

use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Claim, Key, RegionId, RegionLink, Settlement, Source};

use crate::clock::{Clock, SystemClock};
use crate::join::join_all;
use crate::leased::KeyAdjustment;
use crate::{Store, secret};

pub use courier::{Courier, Routes};
pub use message::{DebitMessage, Delivery};
pub use status::{DebitStatus, UnitCounts};
pub use tables::{DebitTables, LoweredLimits};

/// The configuration of debits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebitConfig {
    /// The interval at which debits are sent.
    pub beat: Duration,
}

impl DebitConfig {
    /// The default of [`beat`](Self::beat).
    pub const DEFAULT_BEAT: Duration = Duration::from_millis(100);
}

impl Default for DebitConfig {
    fn default() -> DebitConfig {
        DebitConfig { beat: Self::DEFAULT_BEAT }
    }
}

/// A store that debits in other regions what limits of `region: global` took in its inner store.
#[derive(Debug)]
pub struct DebitOutbox<S, K, C = SystemClock> {
    inner: S,
    courier: K,
    clock: C,
    config: DebitConfig,
    tables: DebitTables,
    collect: Notify,
    /// Wakes the senders of each other region.
    send: Box<[(RegionId, Notify)]>,
}

/// The maximum number of debits a second for each other region.
const MAX_DEBITS_PER_SECOND: u64 = 10_000;
/// The maximum number of debits in one batch of a sender …
const MAX_BATCH: usize = 256;
/// … of which each other region has so many, so that one slow answer does not hold up the rest.
const SENDERS: usize = 8;

impl<S: Store, K: Courier> DebitOutbox<S, K> {
    /// Debits in these regions, using the system clock.
    pub fn new(inner: S, courier: K, config: DebitConfig, others: Vec<(RegionId, String)>) -> Self {
        Self::with_clock(inner, courier, config, others, SystemClock::default())
    }
}

impl<S: Store, K: Courier, C: Clock> DebitOutbox<S, K, C> {
    /// Debits in these regions, using the given clock.
    pub fn with_clock(inner: S, courier: K, config: DebitConfig, others: Vec<(RegionId, String)>, clock: C) -> Self {
        let tables = DebitTables::new(config, secret::random(), others);
        let send = tables.regions().map(|region| (region, Notify::new())).collect();
        DebitOutbox { inner, courier, clock, config, tables, collect: Notify::new(), send }
    }

    /// The inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The way to the other regions.
    pub fn courier(&self) -> &K {
        &self.courier
    }

    /// The debits of each other region.
    pub fn status(&self) -> Vec<DebitStatus> {
        self.tables.status(self.clock.steady())
    }

    /// Whether units wait, or are on their way.
    pub fn has_keys(&self) -> bool {
        self.tables.has_keys()
    }

    /// Drops what waits of counters that operators reset on other servers. Returns the number of counters.
    pub async fn adjust(&self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) -> usize {
        self.tables.adjust(adjustment_of).await
    }

    /// Sends debits. Never returns: the owner of the store runs it concurrently with the claims.
    pub async fn run(&self) {
        let beats = async {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(self.config.beat) => {}
                    () = self.collect.notified() => {}
                }
                self.beat();
            }
        };
        let senders =
            self.send.iter().flat_map(|(region, send)| (0..SENDERS).map(move |_| self.run_sender(*region, send)));
        tokio::join!(beats, join_all(senders));
    }

    /// One round of the background work of [`run`](Self::run).
    pub async fn maintain(&self) {
        self.beat();
        join_all(self.send.iter().map(|(region, _)| self.send_waiting(*region))).await;
        self.tables.update_links(self.clock.steady(), &self.courier);
    }

    /// Hands what is due to the outboxes, and wakes their senders.
    fn beat(&self) {
        self.tables.beat(self.clock.steady(), &self.courier);
        for ((_, send), senders) in self.send.iter().zip(self.tables.senders_needed()) {
            (0..senders).for_each(|_| send.notify_one());
        }
    }

    /// Notes in an answer that came from leases how other regions are doing, if that may have lowered one of its limits.
    /// Answers of the store have it already: of the moment when their limits were chosen, since when it may have changed.
    #[inline]
    pub fn note_link(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let is_late = self.tables.link() != RegionLink::Together && settlement.link == RegionLink::Together;
        if is_late && self.tables.concerns(claim) {
            let mut charges = claim.charges.iter().zip(&settlement.readings);
            if charges.any(|(charge, reading)| charge.is_global() && reading.source == Source::Lease) {
                self.tables.note_link(settlement);
            }
        }
    }

    /// Settles a claim on lowered limits.
    #[cold]
    async fn settle_lowered(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let lowered = self.tables.lowered(claim);
        let settled = lowered.claim(claim);
        self.inner.settle_into(&settled, settlement).await;
        self.record(claim, &settled, settlement);
        lowered.note(settlement);
    }

    fn record(&self, claim: &Claim<'_>, settled: &Claim<'_>, settlement: &Settlement) {
        if self.tables.record(claim, settled, settlement, || self.clock.steady()) {
            self.collect.notify_one();
        }
    }
}

impl<S: Store, K: Courier, C: Clock> Store for DebitOutbox<S, K, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if !self.tables.concerns(claim) {
            return self.inner.settle_into(claim, settlement).await;
        }
        if self.tables.link() == RegionLink::Together {
            self.inner.settle_into(claim, settlement).await;
            self.record(claim, claim, settlement);
        } else {
            // Boxed, so that the futures of requests stay small.
            Box::pin(self.settle_lowered(claim, settlement)).await;
        }
    }

    fn never_waits(&self) -> bool {
        self.inner.never_waits()
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        self.inner.may_be_transient(key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.inner.assume(claim, source, settlement);
    }
}
