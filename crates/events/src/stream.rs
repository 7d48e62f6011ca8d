//! The stream of events of this server: whoever emits one does not wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::Notify;
use tollgate_core::Timestamp;

use crate::event::{CloudEvent, EventSeverity, EventType};

/// Takes events, and has the newest ones.
#[derive(Debug)]
pub struct EventStream {
    /// The name of this server.
    server: String,
    /// Distinguishes events of this run from those of others.
    run: u64,
    numbers: AtomicU64,
    queues: Mutex<Queues>,
    added: Notify,
    counts: [AtomicU64; EventType::ALL.len()],
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queues {
    /// Not in the journal yet.
    waiting: VecDeque<Arc<CloudEvent>>,
    recent: VecDeque<RecentEvent>,
}

/// One of the newest events.
#[derive(Clone, Debug)]
pub struct RecentEvent {
    /// Rises by one with each event of this run.
    pub number: u64,
    pub event: Arc<CloudEvent>,
}

/// Counts since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCounts {
    pub by_type: Vec<(EventType, u64)>,
    /// Those that never were in the journal, because it could not be written for too long.
    pub dropped: u64,
}

/// Events that wait for the journal. Beyond that the oldest are dropped.
pub(crate) const MAX_WAITING: usize = 1_024;
/// The newest events, for lists.
const MAX_RECENT: usize = 256;

impl EventStream {
    /// The stream of the server of this name.
    pub fn new(server: &str) -> EventStream {
        EventStream {
            server: server.to_owned(),
            run: fastrand::u64(..),
            numbers: AtomicU64::new(0),
            queues: Mutex::default(),
            added: Notify::new(),
            counts: Default::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// An event of this server, with an id that no other event has.
    pub fn event(
        &self,
        at: Timestamp,
        kind: EventType,
        severity: EventSeverity,
        text: impl Into<String>,
    ) -> CloudEvent {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        CloudEvent {
            id: format!("{:016x}-{number}", self.run),
            source: format!("tollgate/{}", self.server),
            at,
            kind,
            severity,
            subject: None,
            text: text.into(),
            data: Map::from_iter([("server".to_owned(), Value::from(self.server.as_str()))]),
        }
    }

    /// Adds an event that is in the journal already.
    pub fn note(&self, event: Arc<CloudEvent>) {
        self.counts[event.kind as usize].fetch_add(1, Ordering::Relaxed);
        let mut queues = self.queues();
        let number = queues.recent.back().map_or(1, |last| last.number + 1);
        queues.recent.push_back(RecentEvent { number, event });
        if queues.recent.len() > MAX_RECENT {
            queues.recent.pop_front();
        }
    }

    /// Adds an event.
    pub fn emit(&self, event: CloudEvent) {
        self.emit_shared(Arc::new(event));
    }

    /// The same for an event that others have, too.
    pub fn emit_shared(&self, event: Arc<CloudEvent>) {
        self.note(event.clone());
        let mut queues = self.queues();
        queues.waiting.push_back(event);
        if queues.waiting.len() > MAX_WAITING {
            queues.waiting.pop_front();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        drop(queues);
        self.added.notify_one();
    }

    /// The newest events, oldest first.
    pub fn recent(&self) -> Vec<RecentEvent> {
        self.queues().recent.iter().cloned().collect()
    }

    pub fn counts(&self) -> EventCounts {
        let count = |kind: EventType| (kind, self.counts[kind as usize].load(Ordering::Relaxed));
        EventCounts { by_type: EventType::ALL.map(count).into(), dropped: self.dropped.load(Ordering::Relaxed) }
    }

    /// Completes when an event was added.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// The first ones that are not in the journal.
    pub(crate) fn waiting(&self, max: usize) -> Vec<Arc<CloudEvent>> {
        self.queues().waiting.iter().take(max).cloned().collect()
    }

    /// Removes events that are in the journal now. Some may have been dropped meanwhile.
    pub(crate) fn written(&self, events: &[Arc<CloudEvent>]) {
        let Some(last) = events.last() else { return };
        let mut queues = self.queues();
        if let Some(at) = queues.waiting.iter().position(|event| Arc::ptr_eq(event, last)) {
            queues.waiting.drain(..=at);
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_dropped_and_counted() {
        let stream = EventStream::new("a");
        let emit = |text: String| {
            stream.emit(stream.event(Timestamp::from_secs(1), EventType::Test, EventSeverity::Info, text));
        };
        (0..MAX_WAITING).for_each(|n| emit(n.to_string()));
        let taken = stream.waiting(usize::MAX);
        assert_eq!((taken.len(), stream.counts().dropped), (MAX_WAITING, 0));
        emit("last".to_owned());
        assert_eq!(stream.counts().dropped, 1);
        stream.written(&taken);
        let left: Vec<_> = stream.waiting(9).iter().map(|event| event.text.clone()).collect();
        assert_eq!(left, ["last"]);
        let recent = stream.recent();
        assert_eq!((recent.len(), recent[MAX_RECENT - 1].number), (MAX_RECENT, MAX_WAITING as u64 + 1));
        let count = stream.counts().by_type.iter().find(|(kind, _)| *kind == EventType::Test).unwrap().1;
        assert_eq!(count, MAX_WAITING as u64 + 1);
        assert_ne!(recent[0].event.id, recent[1].event.id);
    }
}
