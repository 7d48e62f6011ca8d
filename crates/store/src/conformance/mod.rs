//! The suite that every [`Store`] must pass.
//!
//! [`run`] takes a function that makes fresh, empty stores and panics with a sentence at the first thing that is wrong. Each
//! part can be called alone. What a store must answer is written down in `tests/traces/*.trace`, one case a line; what rows
//! can't say (threads, differences between two stores) is code here.

#![allow(clippy::panic, reason = "a suite reports what is wrong by panicking, as every test does")]

pub mod atomicity;
pub mod concurrency;
pub mod expiry;
pub mod idempotency;
pub mod reference;
pub mod trace;
mod world;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tollgate_core::Timestamp;

use crate::Store;

/// A store under test, with a clock that is moved by hand.
pub trait Subject: Sync {
    /// What is tested.
    type Store: Store;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Moves its clock, forward or back.
    fn set_now(&self, now: Timestamp);
}

/// Runs every part on stores that `make` makes, each fresh and empty.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    trace::run(&make);
    atomicity::run(&make);
    concurrency::run(&make);
    idempotency::run(&make);
    expiry::run(&make);
}

/// Waits for a future on this thread. The suite needs no executor; a store that does brings its own to `settle`.
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
