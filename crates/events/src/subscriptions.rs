//! All sinks, which a change of their file replaces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;
use tollgate_core::Timestamp;
use tollgate_store::{Clock, SystemClock};

use crate::journal::{Journal, SinkCursor};
use crate::subscription::{Definition, SinkStatus, Subscription};

/// The sinks of a server.
pub struct Subscriptions {
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    active: Mutex<Vec<ActiveSink>>,
}

struct ActiveSink {
    subscription: Arc<Subscription>,
    task: JoinHandle<()>,
}

impl Subscriptions {
    /// No sinks yet.
    pub fn new(journal: Arc<Journal>, clock: Arc<dyn Clock>) -> Subscriptions {
        Subscriptions { journal, clock, active: Mutex::default() }
    }

    /// Those of a server without sinks and without a journal.
    pub fn none() -> Arc<Subscriptions> {
        Arc::new(Subscriptions::new(Arc::new(Journal::in_memory()), Arc::new(SystemClock::default())))
    }

    /// Runs these sinks, and no others. Those that are defined as before go on as they are. It blocks, within a runtime.
    ///
    /// # Errors
    /// Cursors that can't be read or written. Their sinks begin with new events.
    pub fn replace(&self, definitions: Vec<Definition>) -> Result<(), String> {
        let mut active = self.active();
        let mut before = std::mem::take(&mut *active);
        let mut problems = Vec::new();
        for definition in definitions {
            let old = before.iter().position(|old| old.subscription.name() == definition.name);
            let cursor = match old.map(|at| before.swap_remove(at)) {
                Some(old) if old.subscription.digest() == definition.digest => {
                    active.push(old);
                    continue;
                }
                Some(old) => Ok(old.subscription.cursor()),
                None => self.journal.load_cursor(&definition.name),
            };
            let cursor = cursor.unwrap_or_else(|error| {
                problems.push(format!("{}: {error}", definition.name));
                SinkCursor { next: self.journal.next(), ended: None }
            });
            let subscription = Arc::new(Subscription::new(definition, cursor));
            let task = tokio::spawn(subscription.clone().run(self.journal.clone(), self.clock.clone()));
            active.push(ActiveSink { subscription, task });
        }
        let names: Vec<_> = active.iter().map(|one| one.subscription.name()).collect();
        if let Err(error) = self.journal.remove_cursors_except(&names) {
            problems.push(error.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// How all sinks fare, in the order of their file.
    pub fn status(&self, now: Timestamp) -> Vec<SinkStatus> {
        self.active().iter().map(|one| one.subscription.status(&self.journal, now)).collect()
    }

    /// The sink of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Subscription>> {
        self.active().iter().map(|one| &one.subscription).find(|one| one.name() == name).cloned()
    }

    fn active(&self) -> MutexGuard<'_, Vec<ActiveSink>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveSink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions").field("journal", &self.journal).finish_non_exhaustive()
    }
}
