//! Where answers go: to the runtime that waits for them, all of a round trip at once.
//!
//! To wake a task of another runtime is a system call, and a runtime that is woken for one answer writes one answer to its caller. So
//! those that wait on one thread have a task there in common: it is woken once, hands out what came, and their wires write
//! it together.

use std::cell::RefCell;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use super::lane::Answer;

/// The task of one thread and runtime.
pub(super) struct Hub {
    runtime: Id,
    came: Mutex<Vec<Delivery>>,
    wake: Notify,
    /// Its runtime has ended.
    closed: AtomicBool,
}

/// An answer on its way.
type Delivery = (oneshot::Sender<Answer>, Answer);

/// The answers of a round trip, by where they go.
#[derive(Default)]
pub(super) struct Deliveries(SmallVec<[(Arc<Hub>, Vec<Delivery>); 4]>);

thread_local! {
    static HERE: RefCell<Option<Arc<Hub>>> = const { RefCell::new(None) };
}

impl Hub {
    /// The one of whoever asks. Without a runtime there is none, and answers go straight to those who wait.
    pub(super) fn here() -> Option<Arc<Hub>> {
        let runtime = Handle::try_current().ok()?;
        HERE.with(|here| {
            let mut here = here.try_borrow_mut().ok()?;
            match &*here {
                // A thread may have had another runtime before.
                Some(hub) if hub.runtime == runtime.id() && !hub.closed.load(Ordering::Acquire) => {}
                _ => {
                    let hub = Arc::new(Hub {
                        runtime: runtime.id(),
                        came: Mutex::default(),
                        wake: Notify::new(),
                        closed: AtomicBool::new(false),
                    });
                    runtime.spawn(Open(Arc::clone(&hub)).hand_out());
                    *here = Some(hub);
                }
            }
            here.clone()
        })
    }

    fn came(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hub while its task runs.
struct Open(Arc<Hub>);

impl Open {
    async fn hand_out(self) {
        loop {
            self.0.wake.notified().await;
            let came = take(&mut *self.0.came());
            for (to, answer) in came {
                // Who no longer waits does not hear it.
                let _ = to.send(answer);
            }
        }
    }
}

impl Drop for Open {
    /// The runtime ends, and whoever waits on it.
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.came().clear();
    }
}

impl Deliveries {
    /// Takes an answer along.
    pub(super) fn add(&mut self, hub: Option<Arc<Hub>>, to: oneshot::Sender<Answer>, answer: Answer) {
        match hub {
            None => {
                let _ = to.send(answer);
            }
            Some(hub) => match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &hub)) {
                Some((_, deliveries)) => deliveries.push((to, answer)),
                None => self.0.push((hub, vec![(to, answer)])),
            },
        }
    }

    /// Delivers all.
    pub(super) fn send(self) {
        for (hub, deliveries) in self.0 {
            hub.came().extend(deliveries);
            hub.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::sharded::Failure;

    /// Sends an answer from another thread to one who waits here.
    async fn delivered(hub: Option<Arc<Hub>>) -> bool {
        let (to, answered) = oneshot::channel();
        let sender = std::thread::spawn(move || {
            let mut deliveries = Deliveries::default();
            deliveries.add(hub, to, Answer::Failed(Failure::Timeout));
            deliveries.send();
        });
        let answer = answered.await;
        sender.join().is_ok() && answer.is_ok()
    }

    #[test]
    fn a_thread_whose_runtime_is_another_one_has_another_hub() {
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().build().unwrap());
        // The first runtime stands still while the second runs: what were left with its task would never arrive.
        for runtime in [&runtimes[0], &runtimes[1], &runtimes[0]] {
            assert!(runtime.block_on(async { delivered(Hub::here()).await }));
            assert!(runtime.block_on(async { Arc::ptr_eq(&Hub::here().unwrap(), &Hub::here().unwrap()) }));
        }
    }

    #[test]
    fn a_hub_whose_runtime_has_ended_is_not_used_again() {
        let ended = Builder::new_current_thread().build().unwrap();
        let hub = ended.block_on(async { Hub::here().unwrap() });
        drop(ended);
        assert!(hub.closed.load(Ordering::Acquire));
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(async { delivered(Hub::here()).await }));
    }

    #[test]
    fn without_a_runtime_answers_go_straight() {
        assert!(Hub::here().is_none());
        assert!(crate::conformance::block_on(delivered(None)));
    }
}
