//! Readiness and degraded components of this server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The state that health checks report.
///
/// A degraded server is still ready: with its last good rules it keeps deciding, and removing it from the fleet would not help.
#[derive(Debug)]
pub struct Health {
    ready: watch::Sender<bool>,
    stopping: AtomicBool,
    /// Reasons by component: `rules`, `data`, …
    conditions: Mutex<BTreeMap<&'static str, String>>,
}

impl Default for Health {
    fn default() -> Health {
        Health { ready: watch::Sender::new(false), stopping: AtomicBool::new(false), conditions: Mutex::default() }
    }
}

impl Health {
    /// Marks the server as ready: all listeners accept connections.
    pub fn started(&self) {
        if !self.stopping.load(Ordering::Acquire) {
            self.ready.send_replace(true);
        }
    }

    /// Marks the server as not ready, for good.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ready.send_replace(false);
    }

    /// Whether the server accepts work.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// A receiver of changes of readiness.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Marks a component as degraded.
    pub fn degrade(&self, component: &'static str, reason: String) {
        self.lock().insert(component, reason);
    }

    /// Marks a component as healthy again.
    pub fn restore(&self, component: &'static str) {
        self.lock().remove(component);
    }

    /// The degraded components, each with its reason.
    pub fn conditions(&self) -> Vec<(&'static str, String)> {
        self.lock().iter().map(|(component, reason)| (*component, reason.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
