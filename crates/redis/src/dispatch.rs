//! Answers to claims, and how they are dispatched to the runtimes that wait for them, all answers of a round trip at once.
//!
//! Waking a task of another runtime is a system call, and a runtime that is woken for one answer writes one answer to
//! its client. Callers on one thread therefore share a task: it is woken once and distributes all answers, and the
//! wires write them together.

use std::cell::RefCell;
use std::mem::take;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};
use tollgate_core::Timestamp;

use super::codec::{Packet, lacks_keys};
use super::error_reply::ErrorReply;
use tollgate_store::sharded::Failure;

/// The outcome of a claim.
pub(super) enum ClaimAnswer {
    /// The script's answer.
    Settled(AnswerPart),
    /// The claim did not run, or the server rejected it. The packet is returned, to be sent elsewhere.
    Refused(Box<Packet>, ErrorReply),
    /// The outcome is unknown.
    Failed(Failure),
}

/// A claim's part of an answer that several claims share.
pub(super) struct AnswerPart {
    /// When all of them were settled.
    pub(super) at: Timestamp,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) range: Range<usize>,
}

impl AnswerPart {
    /// The claim's part of the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }

    /// Whether the claim was not settled, because it needs further keys.
    pub(super) fn lacks_keys(&self) -> bool {
        lacks_keys(self.bytes())
    }
}

/// The dispatcher of one thread and runtime.
pub(super) struct Dispatcher {
    runtime: Id,
    inbox: Mutex<Vec<PendingAnswer>>,
    wake: Notify,
    /// Its runtime has ended.
    closed: AtomicBool,
}

/// An answer and its receiver.
type PendingAnswer = (oneshot::Sender<ClaimAnswer>, ClaimAnswer);

/// The answers of a round trip, by dispatcher.
#[derive(Default)]
pub(super) struct AnswerBatch(SmallVec<[(Arc<Dispatcher>, Vec<PendingAnswer>); 4]>);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Dispatcher>>> = const { RefCell::new(None) };
}

impl Dispatcher {
    /// The dispatcher of the caller's thread. `None` without a runtime; answers are then sent directly.
    pub(super) fn current() -> Option<Arc<Dispatcher>> {
        let runtime = Handle::try_current().ok()?;
        CURRENT.with(|current| {
            let mut current = current.try_borrow_mut().ok()?;
            match &*current {
                // The thread may have had another runtime before.
                Some(dispatcher)
                    if dispatcher.runtime == runtime.id() && !dispatcher.closed.load(Ordering::Acquire) => {}
                _ => {
                    let dispatcher = Arc::new(Dispatcher {
                        runtime: runtime.id(),
                        inbox: Mutex::default(),
                        wake: Notify::new(),
                        closed: AtomicBool::new(false),
                    });
                    runtime.spawn(DispatcherTask(Arc::clone(&dispatcher)).run());
                    *current = Some(dispatcher);
                }
            }
            current.clone()
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<PendingAnswer>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A dispatcher while its task runs.
struct DispatcherTask(Arc<Dispatcher>);

impl DispatcherTask {
    async fn run(self) {
        loop {
            self.0.wake.notified().await;
            let inbox = take(&mut *self.0.inbox());
            for (to, answer) in inbox {
                // The caller may no longer wait.
                let _ = to.send(answer);
            }
        }
    }
}

impl Drop for DispatcherTask {
    /// The runtime ends, with all callers on it.
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.inbox().clear();
    }
}

impl AnswerBatch {
    /// Adds an answer.
    pub(super) fn add(
        &mut self,
        dispatcher: Option<Arc<Dispatcher>>,
        to: oneshot::Sender<ClaimAnswer>,
        answer: ClaimAnswer,
    ) {
        match dispatcher {
            None => {
                let _ = to.send(answer);
            }
            Some(dispatcher) => match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &dispatcher)) {
                Some((_, answers)) => answers.push((to, answer)),
                None => self.0.push((dispatcher, vec![(to, answer)])),
            },
        }
    }

    /// Sends all answers.
    pub(super) fn send(self) {
        for (dispatcher, answers) in self.0 {
            dispatcher.inbox().extend(answers);
            dispatcher.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    /// Sends an answer from another thread to a receiver on this one.
    async fn delivered(dispatcher: Option<Arc<Dispatcher>>) -> bool {
        let (to, answered) = oneshot::channel();
        let sender = std::thread::spawn(move || {
            let mut answers = AnswerBatch::default();
            answers.add(dispatcher, to, ClaimAnswer::Failed(Failure::Timeout));
            answers.send();
        });
        let answer = answered.await;
        sender.join().is_ok() && answer.is_ok()
    }

    #[test]
    fn a_thread_with_another_runtime_has_another_dispatcher() {
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().build().unwrap());
        // The first runtime is stopped while the second runs: answers that were left with its task would never
        // arrive.
        for runtime in [&runtimes[0], &runtimes[1], &runtimes[0]] {
            assert!(runtime.block_on(async { delivered(Dispatcher::current()).await }));
            assert!(
                runtime
                    .block_on(async { Arc::ptr_eq(&Dispatcher::current().unwrap(), &Dispatcher::current().unwrap()) })
            );
        }
    }

    #[test]
    fn a_dispatcher_whose_runtime_has_ended_is_not_reused() {
        let ended = Builder::new_current_thread().build().unwrap();
        let dispatcher = ended.block_on(async { Dispatcher::current().unwrap() });
        drop(ended);
        assert!(dispatcher.closed.load(Ordering::Acquire));
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(async { delivered(Dispatcher::current()).await }));
    }

    #[test]
    fn without_a_runtime_answers_are_sent_directly() {
        assert!(Dispatcher::current().is_none());
        assert!(tollgate_store::conformance::block_on(delivered(None)));
    }
}
