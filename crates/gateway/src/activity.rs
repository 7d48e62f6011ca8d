//! What happens on a client's connection, and when that is too little.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tollgate_net::{Slot, Stream};

use crate::interim::InterimResponses;

/// What is known of a connection. Its stream, its requests and its watch share it.
#[derive(Default)]
pub(crate) struct ConnectionState {
    received: AtomicU64,
    /// The bytes that were received when the last request began, or ended.
    received_before: AtomicU64,
    open: AtomicU32,
    /// Whether bytes wait until the client reads; and how often such a wait has ended.
    is_blocked: AtomicBool,
    unblocked: AtomicU32,
    tunnel: Mutex<Option<Tunnel>>,
    /// What comes before the response of a request over HTTP/1.1.
    pub(crate) interim: InterimResponses,
}

/// Copies bytes between an upgraded connection, of which some were read, and its upstream.
pub(crate) type Tunnel = Box<dyn FnOnce(Stream, Bytes) -> TunnelFuture + Send>;
pub(crate) type TunnelFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request in flight, up to the end of its response. While there is one, the connection does not make room for others.
pub(crate) struct OpenRequest {
    state: Arc<ConnectionState>,
    slot: Arc<Slot>,
}

/// Ends connections on which too little happens.
pub(crate) struct Watch {
    state: Arc<ConnectionState>,
    /// Whether bytes without a request are the start of a head. In HTTP/2 they may be anything.
    has_heads: bool,
    /// How often in a row there was no request in flight, and how often a part of a head.
    idle: u32,
    head: u32,
    /// How often in a row bytes waited, since the same moment.
    blocked: u32,
    unblocked: u32,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Idle,
    SlowHead,
    /// The client does not read what it gets.
    SlowReader,
}

/// How often is looked at a connection.
const INTERVAL: Duration = Duration::from_secs(5);
/// A connection without a request ends after 75 seconds.
const MAX_IDLE: u32 = 15;
/// A head has to arrive within 10 to 15 seconds.
const MAX_HEAD: u32 = 3;
/// A client has to read something within 60 to 65 seconds, also of what is left when an idle connection ends.
const MAX_BLOCKED: u32 = 13;

impl ConnectionState {
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What was received so far is not the start of a head.
    fn end_head(&self) {
        self.received_before.store(self.received.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Bytes wait for the client, or do not any more.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        if self.is_blocked.load(Ordering::Relaxed) == is_blocked {
            return;
        }
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        if !is_blocked {
            self.unblocked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The connection becomes a tunnel after the response.
    pub(crate) fn upgrade(&self, tunnel: Tunnel) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
    }

    pub(crate) fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OpenRequest {
    pub(crate) fn begin(state: Arc<ConnectionState>, slot: Arc<Slot>) -> OpenRequest {
        state.end_head();
        if state.open.fetch_add(1, Ordering::Relaxed) == 0 {
            slot.begin();
        }
        OpenRequest { state, slot }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.state.end_head();
        if self.state.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.slot.wait();
        }
    }
}

impl Watch {
    pub(crate) fn new(state: Arc<ConnectionState>, has_heads: bool) -> Watch {
        Watch { state, has_heads, idle: 0, head: 0, blocked: 0, unblocked: 0 }
    }

    /// Completes when the connection is to end.
    pub(crate) async fn next(&mut self) -> End {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Some(end) = self.look() {
                return end;
            }
        }
    }

    fn look(&mut self) -> Option<End> {
        let state = &self.state;
        let unblocked = state.unblocked.load(Ordering::Relaxed);
        let is_stuck = state.is_blocked.load(Ordering::Relaxed) && unblocked == self.unblocked;
        self.blocked = if is_stuck { self.blocked + 1 } else { 0 };
        self.unblocked = unblocked;
        if self.blocked >= MAX_BLOCKED {
            return Some(End::SlowReader);
        }
        if state.open.load(Ordering::Relaxed) > 0 {
            (self.idle, self.head) = (0, 0);
            return None;
        }
        let received = state.received.load(Ordering::Relaxed);
        let has_head = self.has_heads && received > state.received_before.load(Ordering::Relaxed);
        self.idle += 1;
        self.head = if has_head { self.head + 1 } else { 0 };
        if self.head >= MAX_HEAD {
            return Some(End::SlowHead);
        }
        if self.idle >= MAX_IDLE + MAX_BLOCKED {
            return Some(End::SlowReader);
        }
        (self.idle >= MAX_IDLE).then_some(End::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_when_too_little_happens() {
        let state = Arc::new(ConnectionState::default());
        let mut watch = Watch::new(state.clone(), true);
        let looks = |watch: &mut Watch, most| (1..=most).find_map(|look| watch.look().map(|end| (look, end)));
        assert_eq!(looks(&mut watch, 100), Some((MAX_IDLE, End::Idle)));
        let mut watch = Watch::new(state.clone(), true);
        let request = OpenRequest::begin(state.clone(), Arc::default());
        assert_eq!(looks(&mut watch, 100), None, "a request is in flight");
        state.set_blocked(true);
        assert_eq!(looks(&mut watch, MAX_BLOCKED - 1), None);
        state.set_blocked(false);
        state.set_blocked(true);
        assert_eq!(looks(&mut watch, 100), Some((MAX_BLOCKED + 1, End::SlowReader)), "it had read something");
        state.set_blocked(false);
        assert_eq!(looks(&mut watch, 100), None);
        drop(request);
        state.received(1);
        assert_eq!(looks(&mut watch, 100), Some((MAX_HEAD, End::SlowHead)));
        let mut http2 = Watch::new(state, false);
        assert_eq!(looks(&mut http2, 100), Some((MAX_IDLE, End::Idle)));
        // The ends of its responses may be buffered, and its client may make no room for them.
        let rest: Vec<_> = (0..MAX_BLOCKED).map(|_| http2.look()).collect();
        let (last, before) = rest.split_last().unwrap();
        assert_eq!(*last, Some(End::SlowReader));
        assert!(before.iter().all(|end| *end == Some(End::Idle)));
    }
}
