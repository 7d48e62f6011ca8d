//! The queue of one connection. Claims wait here during a round trip and are sent together in the next one.
//!
//! A caller may be on another thread and another runtime than the task that sends ([`lane_task`](super::lane_task)).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::codec::Packet;
use super::connect::Link;
use super::dispatch::{ClaimAnswer, Dispatcher};
use tollgate_redis_address::Node;
use tollgate_store::sharded::Failure;

/// A queue to one node, and the connection that drains it.
pub(super) struct Lane {
    node: Node,
    queue: Mutex<LaneQueue>,
    /// Signals a queued claim, the closing of the lane, or a requested check.
    wake: Notify,
    /// Signals that the connection was made or lost.
    changed: Notify,
    driven: AtomicBool,
    /// The server has not answered a round trip although its answer was looked for.
    overdue: AtomicBool,
}

struct LaneQueue {
    claims: VecDeque<QueuedClaim>,
    bytes: usize,
    state: LinkState,
    /// The number of attempts to connect that have begun.
    attempts: u64,
    /// The last attempt that failed.
    failed: u64,
    /// No more claims are accepted.
    closed: bool,
    /// A caller got no answer: check the connection, or try to connect now.
    check_requested: bool,
}

/// The state of the connection.
enum LinkState {
    /// Being made. Claims wait.
    Connecting,
    Up(Link),
    /// The last attempt failed. Claims are rejected immediately.
    Down(Failure),
}

/// A claim in the queue.
pub(super) struct QueuedClaim {
    pub(super) packet: Box<Packet>,
    pub(super) slot: u16,
    pub(super) mode: CallMode,
    /// How often the server did not have the script.
    pub(super) script_misses: u8,
    pub(super) answer: oneshot::Sender<ClaimAnswer>,
    /// The dispatcher of the caller's thread.
    pub(super) dispatcher: Option<Arc<Dispatcher>>,
}

/// Which claims may share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallMode {
    /// Claims of the same slot.
    Shared,
    /// No other claim: during a migration, a call is refused as a whole if its keys are on different nodes.
    Alone,
    /// No other claim, and sent to a node that does not own the slot yet (`ASKING`).
    Asking,
}

/// Why a claim was not queued.
pub(super) enum PushError {
    /// The lane is closed: another one serves the slot.
    Closed(Box<Packet>),
    Failed(Failure),
}

/// The maximum number of claims that wait for one connection.
pub(super) const MAX_QUEUED: usize = 10_000;
/// The maximum number of bytes that wait for one connection.
pub(super) const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of claims in one round trip.
pub(super) const MAX_BATCH: usize = 256;
/// The maximum number of bytes in one round trip, except for a single longer claim.
pub(super) const MAX_BATCH_BYTES: usize = 256 * 1024;

impl Lane {
    pub(super) fn new(node: Node) -> Lane {
        let queue = LaneQueue {
            claims: VecDeque::new(),
            bytes: 0,
            state: LinkState::Connecting,
            attempts: 0,
            failed: 0,
            closed: false,
            check_requested: false,
        };
        Lane {
            node,
            queue: Mutex::new(queue),
            wake: Notify::new(),
            changed: Notify::new(),
            driven: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Queues a claim for the next round trip.
    pub(super) fn push(&self, claim: QueuedClaim) -> Result<(), PushError> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(PushError::Closed(claim.packet));
        }
        if let LinkState::Down(failure) = &queue.state {
            return Err(PushError::Failed(failure.clone()));
        }
        let bytes = claim.packet.size();
        if queue.claims.len() >= MAX_QUEUED || queue.bytes + bytes > MAX_QUEUED_BYTES {
            let waiting = queue.claims.len();
            return Err(PushError::Failed(Failure::Refused(format!("{}: {waiting} claims wait already", self.node))));
        }
        queue.bytes += bytes;
        queue.claims.push_back(claim);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Moves queued claims to a batch, up to the bounds of a round trip. Claims whose callers no longer wait are
    /// dropped.
    pub(super) fn take(&self, batch: &mut Vec<QueuedClaim>) {
        let mut queue = self.queue();
        let mut bytes = batch.iter().map(|claim| claim.packet.size()).sum::<usize>();
        while batch.len() < MAX_BATCH
            && let Some(claim) = queue.claims.front()
        {
            let more = claim.packet.size();
            let is_abandoned = claim.answer.is_closed();
            if !is_abandoned && !batch.is_empty() && bytes + more > MAX_BATCH_BYTES {
                break;
            }
            queue.bytes = queue.bytes.saturating_sub(more);
            let claim = queue.claims.pop_front();
            if !is_abandoned {
                bytes += more;
                batch.extend(claim);
            }
        }
    }

    /// Waits for the connection. Fails if it could not be made.
    pub(super) async fn wait_for_link(&self) -> Result<Link, Failure> {
        self.wait_for_link_after(0).await
    }

    /// Requests another attempt if there is no connection, and waits for the connection. An attempt that has begun before
    /// says nothing about the server's present state.
    pub(super) async fn reconnect(&self) -> Result<Link, Failure> {
        let attempts = self.queue().attempts;
        self.request_check();
        self.wait_for_link_after(attempts).await
    }

    /// Waits for the connection. Fails if an attempt after this one failed.
    async fn wait_for_link_after(&self, attempt: u64) -> Result<Link, Failure> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let queue = self.queue();
                match &queue.state {
                    LinkState::Up(link) => return Ok(link.clone()),
                    LinkState::Down(failure) if queue.failed > attempt => return Err(failure.clone()),
                    LinkState::Down(_) | LinkState::Connecting => {}
                }
            }
            changed.await;
        }
    }

    /// The connection, if there is one now.
    pub(super) fn link(&self) -> Option<Link> {
        match &self.queue().state {
            LinkState::Up(link) => Some(link.clone()),
            LinkState::Connecting | LinkState::Down(_) => None,
        }
    }

    /// Records whether a round trip takes long although this process looked for its answer.
    pub(super) fn set_overdue(&self, overdue: bool) {
        self.overdue.store(overdue, Ordering::Release);
    }

    /// Whether a claim without an answer waits for the server, and not only for this process to be scheduled.
    pub(super) fn waits_for_server(&self) -> bool {
        self.overdue.load(Ordering::Acquire) || !matches!(self.queue().state, LinkState::Up(_))
    }

    /// Requests a check of the connection, or an attempt to connect, now.
    pub(super) fn request_check(&self) {
        self.queue().check_requested = true;
        self.wake.notify_one();
    }

    /// Whether a check was requested since the last call.
    pub(super) fn take_check_request(&self) -> bool {
        std::mem::take(&mut self.queue().check_requested)
    }

    /// Accepts no more claims. Queued claims are still sent.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Waits until there is something to do.
    pub(super) async fn wait_for_work(&self) {
        self.wake.notified().await;
    }

    /// An attempt to connect begins.
    pub(super) fn link_begins(&self) {
        self.queue().attempts += 1;
    }

    /// The connection was made.
    pub(super) fn link_up(&self, link: Link) {
        self.set_overdue(false);
        self.queue().state = LinkState::Up(link);
        self.changed.notify_waiters();
    }

    /// The connection was lost. Queued claims were not sent and wait for the next one.
    pub(super) fn link_lost(&self) {
        self.queue().state = LinkState::Connecting;
        self.changed.notify_waiters();
    }

    /// The connection could not be made: all queued claims fail.
    pub(super) fn link_failed(&self, failure: &Failure) {
        let waiting = {
            let mut queue = self.queue();
            queue.state = LinkState::Down(failure.clone());
            queue.failed = queue.attempts;
            queue.bytes = 0;
            std::mem::take(&mut queue.claims)
        };
        self.changed.notify_waiters();
        for claim in waiting {
            let _ = claim.answer.send(ClaimAnswer::Failed(failure.clone()));
        }
    }

    /// Whether the caller is the one that drives this lane from now on.
    pub(super) fn start_driving(&self) -> bool {
        !self.driven.swap(true, Ordering::AcqRel)
    }

    /// Nobody drives the lane any more.
    pub(super) fn stop_driving(&self) {
        self.driven.store(false, Ordering::Release);
        if !self.is_closed() {
            self.link_lost();
        }
    }

    fn queue(&self) -> MutexGuard<'_, LaneQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
