//! File descriptors: the process's limit, and the share of connections in it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::slots::{Room, Slots};

/// The connections of gateways and applications that may be open at a time, over all their listeners. The other descriptors are
/// reserved for the admin listener, rules, databases and logs. Clones share the count.
#[derive(Clone, Debug)]
pub struct ConnectionShare {
    max: usize,
    open: Arc<AtomicUsize>,
    /// The waiting connections of each listener.
    listeners: Arc<Mutex<Vec<Slots>>>,
}

/// Descriptors for everything that is not a connection of a client (listeners, runtimes, files, databases, Redis), and for
/// connections that are being closed to make room.
const RESERVED: usize = 192;
/// The limit to ask for where the hard one is infinite: the usual maximum of a Linux process.
const MAX_LIMIT: u64 = 1 << 20;

/// Raises the limit on open files as far as the system lets this process, and returns it.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let requested = limit.maximum.unwrap_or(MAX_LIMIT);
    if limit.current.is_some_and(|current| current < requested) {
        // A limit that can't be raised stays as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(requested), maximum: limit.maximum });
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(MAX_LIMIT);
    usize::try_from(current).unwrap_or(usize::MAX)
}

impl ConnectionShare {
    /// The share in this limit on open files, next to an admin listener with this many connections. At least a quarter, however
    /// low the limit.
    pub fn new(limit: usize, admin_connections: usize) -> ConnectionShare {
        let max = limit.saturating_sub(admin_connections.saturating_add(RESERVED)).max(limit / 4).max(1);
        ConnectionShare { max, open: Arc::default(), listeners: Arc::default() }
    }

    /// The maximum number of connections.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Adds a listener.
    pub(super) fn join(&self, slots: &Slots) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(slots.clone());
    }

    /// Makes room for a connection. If the share is full, a waiting one of the listener that has the most of them is closed.
    pub(super) fn make_room(&self) -> Room {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let evict = || listeners.iter().max_by_key(|slots| slots.len()).is_some_and(Slots::evict);
        Room::make(self.open.load(Ordering::Relaxed), self.max, evict)
    }

    /// The count of open connections.
    pub(super) fn open(&self) -> &Arc<AtomicUsize> {
        &self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let raised = raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, Some(raised as u64));
        assert!(limit.maximum.is_none_or(|hard| hard == raised as u64), "{limit:?}");
    }

    #[test]
    fn some_descriptors_are_reserved() {
        let max = |limit| ConnectionShare::new(limit, 256).max();
        assert_eq!([max(65_536), max(1_024), max(400), max(3)], [65_088, 576, 100, 1]);
        assert_eq!(ConnectionShare::new(1_000, usize::MAX).max(), 250);
    }

    #[test]
    fn the_listener_with_the_most_waiting_connections_makes_room() {
        let share = ConnectionShare::new(4_000, 0);
        let (few, many) = (Slots::default(), Slots::default());
        share.join(&few);
        share.join(&many);
        assert_eq!(share.make_room(), Room::Free);
        share.open.store(share.max, Ordering::Relaxed);
        assert_eq!(share.make_room(), Room::None);
        let slots = [few.open(), many.open(), many.open()];
        assert_eq!(share.make_room(), Room::Evicted);
        assert_eq!((few.len(), many.len()), (1, 1));
        drop(slots);
    }
}
