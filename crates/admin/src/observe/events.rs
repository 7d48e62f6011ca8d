//! What happened to this server, for marks on charts: starts, reloads of rules, levels of the counter store.
//!
//! What operators changed is in the audit log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tollgate::Timestamp;
use tollgate_events::{CloudEvent, EventStream};
use tollgate_observe::truncate;

/// The newest events of this server, and the stream of all for sinks.
#[derive(Debug)]
pub struct ServerEvents {
    marks: Mutex<VecDeque<ServerEvent>>,
    stream: Arc<EventStream>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvent {
    pub at: Timestamp,
    pub kind: EventKind,
    /// A sentence for operators, without the full stop.
    pub text: String,
    /// The event as it was sent, if this run of the server did.
    pub sent: Option<Arc<CloudEvent>>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The server started.
    Start,
    /// Rules were put in force.
    Reload,
    /// Rules could not be put in force.
    ReloadFailed,
    /// The level of the counter store changed.
    Store,
    /// A signal was raised, or is over.
    Signal,
}

/// Events that are retained; the oldest are dropped.
pub const MAX_EVENTS: usize = 256;

impl ServerEvents {
    /// No events of the server of this name yet.
    pub fn new(server: &str) -> ServerEvents {
        ServerEvents { marks: Mutex::default(), stream: Arc::new(EventStream::new(server)) }
    }

    /// The stream of all events.
    pub fn stream(&self) -> &Arc<EventStream> {
        &self.stream
    }

    /// Adds an event, also to the stream.
    pub fn emit(&self, kind: EventKind, event: CloudEvent) {
        let event = Arc::new(event);
        let (at, text, sent) = (event.at, truncate(&event.text), Some(event.clone()));
        self.push(ServerEvent { at, kind, text, sent });
        self.stream.emit_shared(event);
    }

    /// Adds a mark that is not in the stream.
    pub fn add(&self, at: Timestamp, kind: EventKind, text: impl AsRef<str>) {
        self.push(ServerEvent { at, kind, text: truncate(text.as_ref()), sent: None });
    }

    fn push(&self, event: ServerEvent) {
        let mut events = self.events();
        events.push_back(event);
        let excess = events.len().saturating_sub(MAX_EVENTS);
        events.drain(..excess);
    }

    /// The events of an earlier run come before those of this one.
    pub fn restore(&self, saved: Vec<ServerEvent>) {
        let mut events = self.events();
        let newer = std::mem::take(&mut *events);
        events.extend(saved.into_iter().chain(newer));
        let excess = events.len().saturating_sub(MAX_EVENTS);
        events.drain(..excess);
    }

    /// Oldest first.
    pub fn all(&self) -> Vec<ServerEvent> {
        self.events().iter().cloned().collect()
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<ServerEvent>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_retained_in_order() {
        let events = ServerEvents::new("a");
        (0..300u64).for_each(|at| events.add(Timestamp::from_secs(at), EventKind::Reload, format!("{at}")));
        let all = events.all();
        assert_eq!((all.len(), &*all[0].text), (MAX_EVENTS, "44"));
        let events = ServerEvents::new("a");
        events.add(Timestamp::from_secs(1_000), EventKind::Start, "started");
        events.restore(all);
        let all = events.all();
        assert_eq!((all.len(), &*all[0].text, &*all[MAX_EVENTS - 1].text), (MAX_EVENTS, "45", "started"));
    }
}
