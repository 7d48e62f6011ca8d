//! A store whose answers a test controls.

#![allow(clippy::unwrap_used, missing_docs, reason = "for tests, which say what they expect by failing")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::{Claim, Settlement, Source, Span};

use crate::guarded::Level;
use crate::{
    AgreeFuture, MemoryConfig, MemoryStore, ReadyFuture, SavedGuard, SettleFuture, SharedStatus, SharedStore, Store,
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
            let behaviour = *self.behaviour.lock().unwrap();
            if behaviour != Behaviour::Normal {
                self.memory.assume(claim, Source::Assumed, settlement);
                for reading in settlement.readings.iter_mut().filter(|_| behaviour == Behaviour::Pending) {
                    (reading.admits, reading.source) = (false, Source::Store);
                }
                return;
            }
            // Claims are settled in order of arrival: only the answers wait.
            self.memory.settle_into(claim, settlement).await;
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
