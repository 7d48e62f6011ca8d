//! The connections of a listener that wait for a request, and may be closed to make room for others.
//!
//! A full listener would refuse everyone while clients hold connections on which they send nothing. So a new connection takes the
//! place of the one that has waited longest, those without any request first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The waiting connections of a listener. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Waiting>>);

/// At most as many as the listener has connections.
#[derive(Debug, Default)]
struct Waiting {
    connections: BTreeMap<Rank, Arc<Notify>>,
    /// Orders connections by the time at which they began to wait.
    next: u64,
}

/// The order in which connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Connections that never had a request come first.
    had_request: bool,
    since: u64,
}

/// The place of one connection. It waits until its first request begins; whether it waits again between requests is up to the
/// protocol.
#[derive(Debug, Default)]
pub struct Slot {
    slots: Slots,
    evicted: Arc<Notify>,
    had_request: AtomicBool,
    /// `None` while it does not wait.
    rank: Mutex<Option<Rank>>,
}

/// Whether there is room for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// A waiting connection makes room.
    Evicted,
    /// As many as may be at a time are being closed.
    Evicting,
    /// No connection waits.
    None,
}

/// Connections beyond a bound while those whose place they take are being closed.
const MAX_EVICTING: usize = 64;

// === impl Room ===

impl Room {
    /// Where `open` of at most `max` connections are open, and `evict` has one of them closed if one waits.
    pub(super) fn make(open: usize, max: usize, evict: impl FnOnce() -> bool) -> Room {
        if open < max {
            Room::Free
        } else if open >= max.saturating_add(MAX_EVICTING) {
            Room::Evicting
        } else if evict() {
            Room::Evicted
        } else {
            Room::None
        }
    }
}

// === impl Slots ===

impl Slots {
    /// A connection that waits for its first request.
    pub(super) fn open(&self) -> Slot {
        let (evicted, had_request, rank) = Default::default();
        let slot = Slot { slots: self.clone(), evicted, had_request, rank };
        slot.wait();
        slot
    }

    /// Has the first of the waiting connections closed; `false` if none waits.
    pub(super) fn evict(&self) -> bool {
        let first = self.lock().connections.pop_first();
        first.is_some_and(|(_, evicted)| {
            evicted.notify_one();
            true
        })
    }

    /// How many connections wait.
    pub(super) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl Slot {
    /// A request has arrived: from now on the connection is not closed for others.
    pub fn begin(&self) {
        self.had_request.store(true, Ordering::Relaxed);
        if let Some(rank) = self.rank().take() {
            self.slots.lock().connections.remove(&rank);
        }
    }

    /// The same, for protocols on whose connections only the first request is waited for. Cheap for all but that one.
    pub fn begin_first(&self) {
        if !self.had_request() {
            self.begin();
        }
    }

    /// The connection waits for its next request.
    pub fn wait(&self) {
        let mut waiting = self.slots.lock();
        waiting.next += 1;
        let rank = Rank { had_request: self.had_request(), since: waiting.next };
        waiting.connections.insert(rank, self.evicted.clone());
        drop(waiting);
        *self.rank() = Some(rank);
    }

    /// Whether a request has arrived.
    pub fn had_request(&self) -> bool {
        self.had_request.load(Ordering::Relaxed)
    }

    /// Completes when the connection has to make room for another.
    pub(super) fn evicted(&self) -> impl Future<Output = ()> + use<> {
        let evicted = self.evicted.clone();
        async move { evicted.notified().await }
    }

    fn rank(&self) -> MutexGuard<'_, Option<Rank>> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(rank) = self.rank().take() {
            self.slots.lock().connections.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_evicted(slot: &Slot) -> bool {
        let evicted = std::pin::pin!(slot.evicted());
        matches!(evicted.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    #[test]
    fn those_without_a_request_go_first_then_those_that_wait_longest() {
        let slots = Slots::default();
        let (reused, busy) = (slots.open(), slots.open());
        reused.begin();
        reused.wait();
        busy.begin_first();
        let (old, new) = (slots.open(), slots.open());
        for next in [&old, &new, &reused] {
            assert!(slots.evict());
            assert!(is_evicted(next));
        }
        assert!(!slots.evict(), "only the one with a request in flight is left");
        assert!(!is_evicted(&busy));
    }

    #[test]
    fn the_number_of_connections_that_are_being_closed_is_bounded() {
        assert_eq!(Room::make(1, 2, || false), Room::Free);
        assert_eq!(Room::make(2, 2, || true), Room::Evicted);
        assert_eq!(Room::make(2, 2, || false), Room::None);
        assert_eq!(Room::make(2 + MAX_EVICTING, 2, || panic!("too many")), Room::Evicting);
    }

    #[test]
    fn a_closed_connection_does_not_wait() {
        let slots = Slots::default();
        drop(slots.open());
        let slot = slots.open();
        slot.begin();
        slot.wait();
        drop(slot);
        assert!(!slots.evict());
        assert_eq!(slots.len(), 0);
    }
}
