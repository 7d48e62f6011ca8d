//! The calls of a connection whose message has not arrived yet.
//!
//! The task of the connection serves them. A waker for each call names the call, so that only calls of which something
//! arrived are looked at, and one timer is enough, since all have the same time to arrive.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use tokio::time::{Instant, Sleep};

use super::message::{Arrival, ArrivingMessage};
use super::status::GrpcStatus;

/// A call whose message is arriving.
pub(super) struct ArrivingCall<'b> {
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) message: ArrivingMessage<'b>,
}

/// These calls, at most as many as a connection may have streams.
pub(super) struct ArrivingCalls<'b> {
    /// In the order of their numbers, which is that of their deadlines.
    calls: BTreeMap<u64, Waiting<'b>>,
    next: u64,
    woken: Arc<Woken>,
    /// For the first deadline, or an earlier one that has become pointless.
    timer: Option<Pin<Box<Sleep>>>,
    limit: Duration,
}

struct Waiting<'b> {
    call: ArrivingCall<'b>,
    waker: Waker,
    deadline: Instant,
}

/// The calls to look at, and the task to wake for them.
#[derive(Default)]
struct Woken(Mutex<WokenCalls>);

#[derive(Default)]
struct WokenCalls {
    /// At most one entry for each call: a stream wakes its reader once for each time that it is polled.
    calls: VecDeque<u64>,
    /// `None` while the task runs: it looks at them before it rests.
    task: Option<Waker>,
}

/// Wakes for one call.
struct CallWaker {
    call: u64,
    woken: Arc<Woken>,
}

impl<'b> ArrivingCalls<'b> {
    /// None yet. Messages have so long to arrive.
    pub(super) fn new(limit: Duration) -> ArrivingCalls<'b> {
        ArrivingCalls { calls: BTreeMap::new(), next: 0, woken: Arc::default(), timer: None, limit }
    }

    /// Adds a call, to be looked at next.
    pub(super) fn add(&mut self, call: ArrivingCall<'b>) {
        let number = self.next;
        self.next += 1;
        // That of a timer that starts now.
        let deadline = tokio::time::sleep(self.limit).deadline();
        let waker = Waker::from(Arc::new(CallWaker { call: number, woken: self.woken.clone() }));
        self.calls.insert(number, Waiting { call, waker, deadline });
        self.woken.lock().calls.push_back(number);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The next call whose message has arrived or failed to.
    pub(super) fn next_arrived(&mut self) -> Option<(ArrivingCall<'b>, Result<Arrival, GrpcStatus>)> {
        loop {
            let number = self.woken.lock().calls.pop_front()?;
            // Taken out, so that a panic leaves nothing of it.
            let Some(mut waiting) = self.calls.remove(&number) else { continue };
            let call = &mut waiting.call;
            match call.message.poll(call.request.body_mut(), &mut Context::from_waker(&waiting.waker)) {
                Poll::Ready(arrived) => return Some((waiting.call, arrived)),
                Poll::Pending => _ = self.calls.insert(number, waiting),
            }
        }
    }

    /// The next call whose message took too long. The task is woken when the next one does.
    pub(super) fn next_expired(&mut self, context: &mut Context<'_>) -> Option<(ArrivingCall<'b>, GrpcStatus)> {
        loop {
            let deadline = self.calls.first_key_value()?.1.deadline;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.is_elapsed() && timer.deadline() >= deadline {
                let (_, waiting) = self.calls.pop_first()?;
                return Some((waiting.call, GrpcStatus::too_slow(self.limit)));
            }
            if timer.is_elapsed() || timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(context).is_pending() {
                return None;
            }
        }
    }

    /// Has the task woken for calls from now on; `false` if one has to be looked at already.
    pub(super) fn rest(&self, task: &Waker) -> bool {
        if self.calls.is_empty() {
            return true;
        }
        let mut woken = self.woken.lock();
        let nothing = woken.calls.is_empty();
        woken.task = nothing.then(|| task.clone());
        nothing
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, WokenCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut woken = self.woken.lock();
            woken.calls.push_back(self.call);
            woken.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}
