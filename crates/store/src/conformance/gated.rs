//! A store whose answers a test controls.

#![allow(clippy::unwrap_used, missing_docs, reason = "for tests, which say what they expect by failing")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::{Claim, Key, OwnedKey, RegionId, RegionLink, RegionShare, Settlement, Source, Span};

use crate::guarded::Level;
use crate::leased::HotKey;
use crate::{
    AgreeFuture, LeaseStatus, MemoryConfig, MemoryStore, PurgedLeases, ReadyFuture, SavedGuard, SettleFuture,
    SharedStatus, SharedStore, Store,
};

/// Counters in memory behind a gate, which is closed at first. Answers wait until the gate is open.
#[derive(Debug)]
pub struct GatedStore {
    memory: MemoryStore,
    open: watch::Sender<bool>,
    /// The timeouts of the claims, in order of arrival.
    timeouts: watch::Sender<Vec<Option<Span>>>,
    status: Mutex<SharedStatus>,
    /// The agreed value, whatever its name.
    agreed: Mutex<Option<Vec<u8>>>,
    behaviour: Mutex<Behaviour>,
    /// The region that does not answer.
    cut_off: Mutex<Option<RegionId>>,
    /// How other regions are doing, and to what limits are lowered for that.
    link: Mutex<(RegionLink, RegionShare)>,
    /// The keys that the store reports as leased, a unit of each; `None` if leases are off.
    leased: Mutex<Option<Vec<OwnedKey>>>,
}

/// How the store answers claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// It settles them.
    #[default]
    Normal,
    /// It answers like an unavailable store.
    Unavailable,
    /// It answers like a store that does not know yet whether they were settled before.
    Pending,
}

impl GatedStore {
    pub fn new() -> Arc<GatedStore> {
        Arc::new(GatedStore {
            memory: MemoryConfig::default().build(),
            open: watch::Sender::new(false),
            timeouts: watch::Sender::default(),
            status: Mutex::default(),
            agreed: Mutex::default(),
            behaviour: Mutex::default(),
            cut_off: Mutex::default(),
            link: Mutex::default(),
            leased: Mutex::default(),
        })
    }

    /// Opens the gate: waiting and future claims are answered.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    /// Sets the status that the store reports.
    pub fn set_status(&self, status: SharedStatus) {
        *self.status.lock().unwrap() = status;
    }

    pub fn set_level(&self, level: Level) {
        self.status.lock().unwrap().guard.level = level;
    }

    /// Sets how the store answers claims from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Sets the region whose counters are unavailable.
    pub fn set_cut_off(&self, region: Option<RegionId>) {
        *self.cut_off.lock().unwrap() = region;
    }

    /// Sets how other regions are doing. Limits of which units are debited there are lowered to this part of them, as far as what
    /// remains of them goes.
    pub fn set_link(&self, link: RegionLink, lowered_to: RegionShare) {
        *self.link.lock().unwrap() = (link, lowered_to);
    }

    /// Sets the keys that are leased, and switches leases on.
    pub fn set_leased(&self, keys: Vec<OwnedKey>) {
        *self.leased.lock().unwrap() = Some(keys);
    }

    /// Sets or clears the agreed value.
    pub fn set_agreed(&self, value: Option<&[u8]>) {
        *self.agreed.lock().unwrap() = value.map(<[u8]>::to_owned);
    }

    /// Waits until there were `count` claims, and returns the timeout of each.
    pub async fn timeouts(&self, count: usize) -> Vec<Option<Span>> {
        let mut timeouts = self.timeouts.subscribe();
        timeouts.wait_for(|timeouts| timeouts.len() >= count).await.unwrap().clone()
    }
}

impl SharedStore for GatedStore {
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Option<SettleFuture<'a>> {
        Some(Box::pin(async move {
            self.timeouts.send_modify(|timeouts| timeouts.push(claim.timeout));
            let cut_off = *self.cut_off.lock().unwrap();
            let is_cut_off = claim.charges.first().is_some_and(|charge| Some(charge.key.region()) == cut_off);
            let behaviour = if is_cut_off { Behaviour::Unavailable } else { *self.behaviour.lock().unwrap() };
            if behaviour != Behaviour::Normal {
                self.memory.assume(claim, Source::Assumed, settlement);
                for reading in settlement.readings.iter_mut().filter(|_| behaviour == Behaviour::Pending) {
                    (reading.admits, reading.source) = (false, Source::Store);
                }
                return;
            }
            // Claims are settled in order of arrival: only the answers wait.
            self.memory.settle_into(claim, settlement).await;
            if claim.charges.iter().any(|charge| charge.is_global()) {
                (settlement.link, settlement.lowered_to) = *self.link.lock().unwrap();
            }
            for at in 0..claim.charges.len() {
                let lowered = claim.charges[at].limit.quota() - settlement.counted_quota(&claim.charges[at]);
                settlement.readings[at].remaining = settlement.readings[at].remaining.saturating_sub(lowered);
            }
            self.open.subscribe().wait_for(|open| *open).await.unwrap();
        }))
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.memory.assume(claim, source, settlement);
    }

    fn level(&self) -> Level {
        self.status().guard.level
    }

    fn status(&self) -> SharedStatus {
        self.status.lock().unwrap().clone()
    }

    fn refresh(&self) -> SharedStatus {
        self.status()
    }

    /// Waits until the gate is open.
    fn wait_until_ready(&self, timeout: Duration) -> ReadyFuture<'_> {
        Box::pin(async move {
            let mut open = self.open.subscribe();
            tokio::time::timeout(timeout, open.wait_for(|open| *open)).await.is_ok()
        })
    }

    fn save(&self) -> SavedGuard {
        SavedGuard::new(self.status().guard.replicas)
    }

    fn leases(&self, hot_keys: usize) -> LeaseStatus {
        let leased = self.leased.lock().unwrap();
        let hot_key = |key: &OwnedKey| HotKey { key: key.clone(), rate: 2.0, chunk: 8, held: 1, local: 0.75 };
        let keys = leased.as_deref().unwrap_or_default();
        LeaseStatus {
            is_enabled: leased.is_some(),
            keys: keys.len(),
            held: keys.len() as u64,
            hot_keys: keys.iter().take(hot_keys).map(hot_key).collect(),
            ..LeaseStatus::default()
        }
    }

    fn set_leases(&self, is_enabled: bool) {
        *self.leased.lock().unwrap() = is_enabled.then(Vec::new);
    }

    fn purge_leases(&self, is_purged: &dyn Fn(&Key<'_>) -> bool) -> PurgedLeases {
        let mut leased = self.leased.lock().unwrap();
        let before = leased.as_ref().map_or(0, Vec::len);
        leased.iter_mut().for_each(|keys| keys.retain(|key| !is_purged(&key.key())));
        let keys = before - leased.as_ref().map_or(0, Vec::len);
        PurgedLeases { keys, units: keys as u64 }
    }

    fn purge_refusals(&self, _: &dyn Fn(&Key<'_>) -> bool) -> usize {
        3
    }

    /// Fails while the gate is closed.
    fn agree_on<'a>(&'a self, _: &'a str, proposal: &'a [u8], _: Duration) -> AgreeFuture<'a> {
        Box::pin(async move {
            if !*self.open.borrow() {
                return Err("the gate is closed".to_owned());
            }
            Ok(self.agreed.lock().unwrap().get_or_insert_with(|| proposal.to_owned()).clone())
        })
    }
}
