//! The suite that every [`Store`] must pass.
//!
//! [`run`] takes a function that makes fresh, empty stores and panics at the first violation. Each part can be called
//! alone. The expected answers are in `tests/traces/*.trace`, one case a line; what rows cannot express (threads,
//! differences between two stores) is code here.

#![allow(clippy::panic, reason = "a suite reports what is wrong by panicking, as every test does")]

pub mod atomicity;
pub mod concurrency;
pub mod expiry;
pub mod gated;
pub mod idempotency;
pub mod reference;
pub mod refunds;
pub mod steps;
pub mod trace;
mod world;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tollgate_core::{Limit, Shortcuts, Timestamp};

use crate::Store;

/// A store under test, with a clock that is set by hand.
pub trait Subject: Sync {
    /// The type of the store.
    type Store: Store;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Sets its clock, forward or back.
    fn set_now(&self, now: Timestamp);

    /// What charges of a limit permit. A store that answers some charges by itself runs the suite with those, too.
    fn shortcuts(&self, _limit: &Limit) -> Shortcuts {
        Shortcuts::Refusals
    }
}

/// Runs every part, each on fresh stores from `make`.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    trace::run(&make);
    atomicity::run(&make);
    concurrency::run(&make);
    idempotency::run(&make);
    expiry::run(&make);
    refunds::run(&make);
}

/// Waits for a future on this thread. The suite needs no executor; a store that does has its own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
