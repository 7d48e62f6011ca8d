//! Whether this server can be sent work, and what is not as it should be.

pub(crate) mod pages;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What health checks are told.
///
/// Degraded is not unready: a server that runs on its last good rules decides, and taking it out of the fleet would help nobody.
#[derive(Debug)]
pub(crate) struct Health {
    ready: watch::Sender<bool>,
    stopping: AtomicBool,
    /// What is degraded, by part: `rules`, `data`, …
    conditions: Mutex<BTreeMap<&'static str, String>>,
}

impl Default for Health {
    fn default() -> Health {
        Health { ready: watch::Sender::new(false), stopping: AtomicBool::new(false), conditions: Mutex::default() }
    }
}

impl Health {
    /// All listeners answer from now on.
    pub(crate) fn started(&self) {
        if !self.stopping.load(Ordering::Acquire) {
            self.ready.send_replace(true);
        }
    }

    /// No more work, please.
    pub(crate) fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ready.send_replace(false);
    }

    /// Whether to send work.
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Follows readiness.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// A part is not as it should be, for this reason.
    pub(crate) fn degrade(&self, part: &'static str, reason: String) {
        self.lock().insert(part, reason);
    }

    /// A part is well again.
    pub(crate) fn restore(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// Everything that is not as it should be.
    pub(crate) fn conditions(&self) -> Vec<(&'static str, String)> {
        self.lock().iter().map(|(part, reason)| (*part, reason.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
