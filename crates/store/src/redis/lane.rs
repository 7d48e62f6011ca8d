//! One connection's queue: claims wait here while a round trip is under way, and go out together in the next.
//!
//! Whoever asks may be on another thread and another runtime than the task that sends ([`drive`](super::drive)).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tollgate_core::Timestamp;

use super::address::Node;
use super::codec::Packet;
use super::connect::Link;
use super::fault::Fault;
use super::hub::Hub;
use crate::sharded::Failure;

/// A queue to one node, and the connection that empties it.
pub(super) struct Lane {
    node: Node,
    queue: Mutex<Queue>,
    /// Something waits, or the lane is to close or to look at its connection.
    wake: Notify,
    /// The connection came or went.
    changed: Notify,
    driven: AtomicBool,
}

struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    state: State,
    /// How often a connection could not be made.
    failed: u64,
    /// Nothing more may come in.
    closed: bool,
    /// Somebody had no answer: see whether the connection lives, or try to connect now.
    nudged: bool,
}

/// How the connection is.
enum State {
    /// Being made. What comes in waits.
    Connecting,
    Up(Link),
    /// The last try failed. What comes in is told so at once.
    Down(Failure),
}

/// A claim that waits for its turn.
pub(super) struct Job {
    pub(super) packet: Box<Packet>,
    pub(super) slot: u16,
    pub(super) manner: Manner,
    /// How often the script was not there.
    pub(super) unscripted: u8,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Where whoever asked waits.
    pub(super) hub: Option<Arc<Hub>>,
}

/// With whom a claim may share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    /// With others of its slot.
    Together,
    /// With nobody: while a slot moves, a call on keys here and there is refused as a whole.
    Alone,
    /// With nobody, and of a node that does not own the slot yet.
    Asking,
}

/// What became of a claim.
pub(super) enum Answer {
    /// The script's answer.
    Settled(Part),
    /// It did not run, or the server says why not. The packet comes back, to be sent elsewhere.
    Refused(Box<Packet>, Fault),
    /// Nobody knows.
    Failed(Failure),
}

/// A part of an answer that several claims share.
pub(super) struct Part {
    /// When all of them were settled.
    pub(super) at: Timestamp,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) range: Range<usize>,
}

/// Why a claim was not taken.
pub(super) enum Rejected {
    /// The lane has closed: another one serves the slot.
    Closed(Box<Packet>),
    Failed(Failure),
}

/// The most claims that wait for one connection.
pub(super) const MOST_WAITING: usize = 10_000;
/// The most bytes that wait for one connection.
pub(super) const MOST_BYTES_WAITING: usize = 64 * 1024 * 1024;
/// The most claims of one round trip.
pub(super) const MOST_AT_ONCE: usize = 256;
/// The most bytes of one round trip, but for a single claim that is longer.
pub(super) const MOST_BYTES_AT_ONCE: usize = 256 * 1024;

impl Lane {
    pub(super) fn new(node: Node) -> Lane {
        let queue = Queue {
            jobs: VecDeque::new(),
            bytes: 0,
            state: State::Connecting,
            failed: 0,
            closed: false,
            nudged: false,
        };
        Lane {
            node,
            queue: Mutex::new(queue),
            wake: Notify::new(),
            changed: Notify::new(),
            driven: AtomicBool::new(false),
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Puts a claim in, for the next round trip.
    pub(super) fn push(&self, job: Job) -> Result<(), Rejected> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(Rejected::Closed(job.packet));
        }
        if let State::Down(failure) = &queue.state {
            return Err(Rejected::Failed(failure.clone()));
        }
        let bytes = job.packet.size();
        if queue.jobs.len() >= MOST_WAITING || queue.bytes + bytes > MOST_BYTES_WAITING {
            let waiting = queue.jobs.len();
            return Err(Rejected::Failed(Failure::Refused(format!("{}: {waiting} claims wait already", self.node))));
        }
        queue.bytes += bytes;
        queue.jobs.push_back(job);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Adds what waits to a batch, up to the bounds of a round trip. Whoever no longer waits for an answer is not charged.
    pub(super) fn take(&self, batch: &mut Vec<Job>) {
        let mut queue = self.queue();
        let mut bytes = batch.iter().map(|job| job.packet.size()).sum::<usize>();
        while batch.len() < MOST_AT_ONCE
            && let Some(job) = queue.jobs.front()
        {
            let more = job.packet.size();
            let left = job.answer.is_closed();
            if !left && !batch.is_empty() && bytes + more > MOST_BYTES_AT_ONCE {
                break;
            }
            queue.bytes = queue.bytes.saturating_sub(more);
            let job = queue.jobs.pop_front();
            if !left {
                bytes += more;
                batch.extend(job);
            }
        }
    }

    /// The connection, once it is there; the reason, if it could not be made.
    pub(super) async fn linked(&self) -> Result<Link, Failure> {
        self.linked_after(None).await
    }

    /// The same, after another try to connect if the last one failed.
    pub(super) async fn linked_anew(&self) -> Result<Link, Failure> {
        let failed = self.queue().failed;
        self.nudge();
        self.linked_after(Some(failed)).await
    }

    async fn linked_after(&self, failed: Option<u64>) -> Result<Link, Failure> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let queue = self.queue();
                match &queue.state {
                    State::Up(link) => return Ok(link.clone()),
                    State::Down(failure) if failed != Some(queue.failed) => return Err(failure.clone()),
                    State::Down(_) | State::Connecting => {}
                }
            }
            changed.await;
        }
    }

    /// The connection, if it is there now.
    pub(super) fn link(&self) -> Option<Link> {
        match &self.queue().state {
            State::Up(link) => Some(link.clone()),
            State::Connecting | State::Down(_) => None,
        }
    }

    /// Has the connection looked at, or made, now.
    pub(super) fn nudge(&self) {
        self.queue().nudged = true;
        self.wake.notify_one();
    }

    /// Whether somebody asked for a look since the last time.
    pub(super) fn was_nudged(&self) -> bool {
        std::mem::take(&mut self.queue().nudged)
    }

    /// Nothing more comes in; what waits is still sent.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Resolves when there is something to do.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The connection is there.
    pub(super) fn up(&self, link: Link) {
        self.queue().state = State::Up(link);
        self.changed.notify_waiters();
    }

    /// The connection is gone. What waits was not sent, and waits for the next.
    pub(super) fn lost(&self) {
        self.queue().state = State::Connecting;
        self.changed.notify_waiters();
    }

    /// No connection could be made: nobody waits any more.
    pub(super) fn down(&self, failure: &Failure) {
        let waiting = {
            let mut queue = self.queue();
            queue.state = State::Down(failure.clone());
            queue.failed += 1;
            queue.bytes = 0;
            std::mem::take(&mut queue.jobs)
        };
        self.changed.notify_waiters();
        for job in waiting {
            let _ = job.answer.send(Answer::Failed(failure.clone()));
        }
    }

    /// Whether whoever asks is the one to drive this lane from now on.
    pub(super) fn take_over(&self) -> bool {
        !self.driven.swap(true, Ordering::AcqRel)
    }

    /// Nobody drives it any more.
    pub(super) fn leave(&self) {
        self.driven.store(false, Ordering::Release);
        if !self.is_closed() {
            self.lost();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
