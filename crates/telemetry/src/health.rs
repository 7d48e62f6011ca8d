//! Readiness and degraded components of this server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The state that health checks report.
///
/// A degraded server is still ready: with its last good rules it keeps deciding, and removing it from the fleet would not help.
#[derive(Debug)]
pub struct Health {
    ready: watch::Sender<bool>,
    readiness: Mutex<ReadinessState>,
    /// Reasons by component: `rules`, `data`, …
    conditions: Mutex<BTreeMap<&'static str, String>>,
}

/// What readiness depends on.
#[derive(Debug, Default)]
struct ReadinessState {
    is_started: bool,
    is_stopping: bool,
    /// Components that the server waits for.
    holds: BTreeSet<&'static str>,
}

impl Default for Health {
    fn default() -> Health {
        Health { ready: watch::Sender::new(false), readiness: Mutex::default(), conditions: Mutex::default() }
    }
}

impl Health {
    /// Marks the server as started: all listeners accept connections. It is ready, unless a component [holds](Health::hold) it.
    pub fn started(&self) {
        self.change(|state| state.is_started = true);
    }

    /// Marks the server as not ready, for good.
    pub fn stopping(&self) {
        self.change(|state| state.is_stopping = true);
    }

    /// The server does not become ready before this component [releases](Health::release) it.
    pub fn hold(&self, component: &'static str) {
        self.change(|state| {
            state.holds.insert(component);
        });
    }

    /// Ends a [hold](Health::hold), if there is one.
    pub fn release(&self, component: &'static str) {
        self.change(|state| {
            state.holds.remove(component);
        });
    }

    fn change(&self, change: impl FnOnce(&mut ReadinessState)) {
        let mut state = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let is_ready = state.is_started && !state.is_stopping && state.holds.is_empty();
        // Under the lock, so that readiness follows the last change.
        self.ready.send_if_modified(|ready| std::mem::replace(ready, is_ready) != is_ready);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_when_it_started_and_nothing_holds_it() {
        let health = Health::default();
        health.hold("control");
        health.started();
        assert!(!health.is_ready());
        health.release("control");
        assert!(health.is_ready());
        // What was never held can be released.
        health.release("control");
        assert!(health.is_ready());
        health.stopping();
        health.started();
        assert!(!health.is_ready());
    }
}
