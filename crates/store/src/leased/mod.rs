//! A store that takes units of busy keys ahead of requests and decides most requests from what it holds.
//!
//! Units are taken as a claim that asks for [up to](tollgate_core::Ask::UpTo) so many, and spent only while the inner
//! store counts them ([`chunk`]): a limit is never exceeded. How many are taken is decided by [`policy`]. [`Tables`] have
//! the pools and lead a claim through them; they do no I/O and read no clock, so that the simulator runs the same code.
//! [`Leased`] only drives them.

mod advance;
mod call;
mod changes;
mod chunk;
mod demand;
mod door;
mod errand;
mod in_advance;
mod policy;
mod pool;
mod status;
mod tables;

use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Claim, ClaimId, Key, Settlement, Source, Span};

use crate::clock::{Clock, SystemClock};
use crate::{Store, secret};

pub use call::Call;
pub use changes::KeyAdjustment;
pub use errand::Errand;
pub use policy::LeasePolicy;
pub use status::{HotKey, LeaseCounts, LeaseStatus, PurgedLeases};
pub use tables::{LeaseStep, Tables};

/// The configuration of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Whether keys are leased at all.
    pub is_enabled: bool,
    /// The longest time for which units are taken.
    pub time: Span,
    /// The most keys that are leased at the same time.
    pub keys: usize,
}

impl Default for LeaseConfig {
    fn default() -> LeaseConfig {
        LeaseConfig { is_enabled: true, time: Span::from_secs(5), keys: 65_536 }
    }
}

/// A store that leases units of busy keys from an inner store.
#[derive(Debug)]
pub struct Leased<S, C = SystemClock> {
    inner: S,
    tables: Tables,
    clock: C,
    /// Wake [`run`](Self::run) when there are errands: to other regions, and to this one.
    errands: [Notify; 2],
}

/// The interval of background work.
const INTERVAL: Duration = Duration::from_millis(50);
/// The most errands that are sent at the same time.
const MAX_SENDS: usize = 256;

impl<S: Store> Leased<S> {
    /// Leases units of a store, using the system clock.
    pub fn new(inner: S, config: LeaseConfig) -> Self {
        Self::with_clock(inner, config, SystemClock::default())
    }
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Leases units of a store, using the given clock.
    pub fn with_clock(inner: S, config: LeaseConfig, clock: C) -> Self {
        let tables = Tables::new(config, secret::random());
        tables.set_enabled(config.is_enabled);
        Leased { inner, tables, clock, errands: Default::default() }
    }

    /// The inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What is leased, with the busiest keys.
    pub fn status(&self, hot_keys: usize) -> LeaseStatus {
        self.tables.status(self.clock.steady(), hot_keys)
    }

    /// The number of servers that share the inner store. While it is unknown, nothing is spent before the store counts it.
    pub fn set_servers(&self, servers: u64) {
        self.tables.set_servers(servers);
    }

    /// Stops leasing, or begins again. Everything that is held is given back within a moment.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.tables.set_enabled(is_enabled);
        self.notify();
    }

    /// Applies what operators changed on other servers. Returns the number of keys.
    pub fn adjust(&self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) -> usize {
        self.tables.adjust(adjustment_of)
    }

    /// Whether something is held or known of any key.
    pub fn has_keys(&self) -> bool {
        self.tables.has_keys()
    }

    /// Gives back what is held of keys, and forgets what is known of them: the inner store decides their next requests.
    pub fn purge(&self, is_purged: impl Fn(&Key<'_>) -> bool) -> PurgedLeases {
        let purged = self.tables.purge(self.clock.steady(), is_purged);
        self.notify();
        purged
    }

    /// Takes units ahead of demand, and gives back what is idle. Never returns: the owner of the store runs it
    /// concurrently with the claims.
    pub async fn run(&self) {
        // While one sender waits for a slow call, another takes what is new.
        let send = |is_here: bool| async move {
            loop {
                self.errands[usize::from(is_here)].notified().await;
                self.send_errands(is_here).await;
            }
        };
        let maintain = async {
            loop {
                tokio::time::sleep(INTERVAL).await;
                self.tables.beat(self.clock.steady());
                self.errands[0].notify_one();
                self.send_errands(true).await;
            }
        };
        // Calls to other regions take longer than those to this one, which must not wait for them.
        let elsewhere = async { tokio::join!(send(false), send(false), send(false), send(false)) };
        tokio::join!(maintain, send(true), send(true), send(true), send(true), elsewhere);
    }

    /// One round of the background work of [`run`](Self::run).
    pub async fn maintain(&self) {
        self.tables.beat(self.clock.steady());
        tokio::join!(self.send_errands(true), self.send_errands(false));
    }

    /// Wakes the senders of errands.
    fn notify(&self) {
        self.errands.iter().for_each(Notify::notify_one);
    }

    /// Gives back everything, and leases nothing any more. For a server that stops.
    pub async fn stop(&self) {
        self.tables.set_enabled(false);
        self.maintain().await;
    }

    async fn send_errands(&self, is_here: bool) {
        loop {
            let errands = self.tables.take_errands_to(is_here, MAX_SENDS);
            if errands.is_empty() {
                return;
            }
            crate::join::join_all(errands.iter().map(|errand| self.send(errand))).await;
        }
    }

    async fn send(&self, errand: &Errand) {
        let sent = self.clock.steady();
        let answer = self.inner.settle(&errand.claim(ClaimId::default())).await;
        let took = self.clock.steady().since(sent);
        self.tables.end_errand(errand, &answer, sent, took, random());
    }
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Settles a claim, if that needs no call of the inner store. Otherwise returns what is left to do, for
    /// [`finish`](Self::finish).
    #[inline]
    pub fn begin<'a>(&self, claim: &Claim<'a>, settlement: &mut Settlement) -> Option<LeaseStep<'_, 'a>> {
        match self.tables.begin(claim, self.clock.steady(), settlement) {
            LeaseStep::Answered { has_errands } => {
                if has_errands {
                    self.notify();
                }
                None
            }
            step => Some(step),
        }
    }

    /// Does the rest of a claim that [`begin`](Self::begin) did not settle.
    pub async fn finish(&self, step: LeaseStep<'_, '_>, claim: &Claim<'_>, settlement: &mut Settlement) {
        match step {
            LeaseStep::Answered { .. } => {}
            LeaseStep::Whole => {
                self.inner.settle_into(claim, settlement).await;
                self.tables.end_whole(claim, || self.clock.steady(), settlement);
            }
            LeaseStep::Call(call) => {
                let answer = self.inner.settle(call.claim()).await;
                call.end(&answer, self.clock.steady(), random(), settlement);
            }
        }
    }
}

impl<S: Store, C: Clock> Store for Leased<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if let Some(step) = self.begin(claim, settlement) {
            self.finish(step, claim, settlement).await;
        }
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        self.inner.may_be_transient(key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.inner.assume(claim, source, settlement);
    }
}

/// From ½ to 1½.
fn random() -> f64 {
    0.5 + fastrand::f64()
}
