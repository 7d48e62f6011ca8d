//! A future that shares a task with a busy one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only when it was woken itself. The task of a connection is woken for every call, while its
/// timers and the signal of shutdown are rarely due.
pub(super) struct Alarm<'f, F> {
    future: Pin<&'f mut F>,
    /// `None` before the first poll.
    bell: Option<Arc<Bell>>,
}

struct Bell {
    rung: AtomicBool,
    task: Waker,
}

impl<'f, F: Future> Alarm<'f, F> {
    pub(super) fn new(future: Pin<&'f mut F>) -> Alarm<'f, F> {
        Alarm { future, bell: None }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        let bell = match &self.bell {
            Some(bell) if bell.task.will_wake(context.waker()) => {
                if !bell.rung.load(Ordering::Relaxed) {
                    return Poll::Pending;
                }
                // Before the poll, so that no ring is lost.
                bell.rung.swap(false, Ordering::Acquire);
                bell.clone()
            }
            // The first poll, or another task has become the one to wake.
            _ => Arc::new(Bell { rung: AtomicBool::new(false), task: context.waker().clone() }),
        };
        let waker = Waker::from(self.bell.insert(bell).clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_woken_future_is_polled() {
        let mut polls = 0;
        let mut inner: Option<Waker> = None;
        let (task, other) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut future = std::pin::pin!(std::future::poll_fn(|context| {
            polls += 1;
            inner = Some(context.waker().clone());
            if polls == 3 { Poll::Ready(inner.take()) } else { Poll::<Option<Waker>>::Pending }
        }));
        let mut alarm = Alarm::new(future.as_mut());
        let (waker, other_waker) = (Waker::from(task.clone()), Waker::from(other.clone()));
        let mut poll = |waker: &Waker| alarm.poll(&mut Context::from_waker(waker));
        assert!(poll(&waker).is_pending());
        assert!(poll(&waker).is_pending());
        // Polled again for another task, which is the one to wake from then on.
        assert!(poll(&other_waker).is_pending());
        assert!(poll(&other_waker).is_pending());
        // The third poll, after which the future's waker is returned.
        let Poll::Ready(Some(last)) = poll(&waker) else { panic!("polled for the third time") };
        last.wake();
        assert_eq!((task.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 0));
    }
}
