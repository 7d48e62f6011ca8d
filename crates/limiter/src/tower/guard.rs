//! What a request took, until it has ended.
//!
//! A guard goes with the request: from the decision to the handler, and on to the end of the response body. However that comes
//! (the body ends, it or the future is dropped, the handler panics), the guard is dropped, and what was taken is settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tollgate_core::Span;

use super::Settling;
use super::spent::Spent;
use crate::{Ending, Receipt};

/// Settles what a request took when it is dropped; nothing if there is nothing to settle.
#[derive(Default)]
pub(super) struct Guard(Option<Box<Held>>);

struct Held {
    books: Arc<dyn Books>,
    receipt: Arc<Receipt>,
    /// Whoever keeps its slots.
    keeper: Option<oneshot::Sender<End>>,
    spent: Spent,
    stage: Stage,
}

/// How far the request has come: what it means if it ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has not reached the handler. Nothing was done for it.
    Outside,
    /// Its handler, or what gives its body, is at work at this moment: if this is the last that is heard of it, that panicked.
    Working,
    /// It goes well so far.
    Well,
    /// It has failed.
    Failed,
}

/// How a request ended, and what it cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    ending: Ending,
    cost: Option<u64>,
}

/// Where it is settled: a limiter, whatever its store.
pub(super) trait Books: Send + Sync {
    /// Settles at once, if the store never waits; whether it was.
    fn settle_now(&self, receipt: &Receipt, ending: Ending, cost: Option<u64>) -> bool;

    /// Settles.
    fn settle<'a>(&'a self, receipt: &'a Receipt, ending: Ending, cost: Option<u64>) -> Settling<'a, ()>;

    /// Notes that nobody will settle.
    fn abandon(&self);

    /// Says that the request is running.
    fn running<'a>(&'a self, receipt: &'a Receipt) -> Settling<'a, Heard>;
}

/// What became of the word that a request is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The shortest of its slots is held for so long from now on.
    For(Span),
    /// No rule counts its slots any more; but rules that are changed may be changed back.
    Uncounted,
    /// The store is away.
    Unheard,
    /// It has ended.
    Over,
}

/// So often within the time that a slot is held it is told that the request is running: two words may get lost.
const WORDS_A_HOLD: u32 = 3;
/// The same while the store does not hear it.
const TRIES_A_HOLD: u32 = 12;

impl Guard {
    /// For what a request took. Its slots, held for `held_for`, are kept by a task on the runtime of this thread.
    pub(super) fn new(books: Arc<dyn Books>, receipt: Receipt, held_for: Option<Span>, never_waits: bool) -> Guard {
        let receipt = Arc::new(receipt);
        let mut keeper = None;
        // Where the store never waits the guard settles by itself, and only slots need somebody who keeps them.
        if (held_for.is_some() || !never_waits)
            && let Ok(runtime) = Handle::try_current()
        {
            let (end, ended) = oneshot::channel();
            keeper = Some(end);
            runtime.spawn(keep(books.clone(), receipt.clone(), held_for, ended));
        }
        let (spent, stage) = (Spent::counted(), Stage::Outside);
        Guard(Some(Box::new(Held { books, receipt, keeper, spent, stage })))
    }

    /// The handle by which its cost is reported.
    pub(super) fn spent(&self) -> Spent {
        self.0.as_ref().map_or_else(Spent::default, |held| held.spent.clone())
    }

    /// Runs a step of the handler or of the body.
    pub(super) fn during<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let Some(held) = &mut self.0 else { return step() };
        let before = std::mem::replace(&mut held.stage, Stage::Working);
        let done = step();
        held.stage = if before == Stage::Failed { Stage::Failed } else { Stage::Well };
        done
    }

    /// The request has failed.
    pub(super) fn failed(&mut self) {
        if let Some(held) = &mut self.0 {
            held.stage = Stage::Failed;
        }
    }

    /// The request is over before it began, and keeps what it took but for its slots.
    pub(super) fn forgo(mut self) {
        if let Some(held) = &mut self.0 {
            held.stage = Stage::Well;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let ending = match self.stage {
            Stage::Well => Ending::Ok,
            Stage::Outside | Stage::Working | Stage::Failed => Ending::Failed,
        };
        let cost = if self.stage == Stage::Outside { Some(0) } else { self.spent.last() };
        if self.books.settle_now(&self.receipt, ending, cost) {
            return;
        }
        let told = self.keeper.take().is_some_and(|keeper| keeper.send(End { ending, cost }).is_ok());
        if !told {
            // There is no runtime, or none any more: slots free themselves.
            self.books.abandon();
        }
    }
}

/// Keeps what a request holds until it ends, whether or not somebody looks at its body meanwhile, and settles it then, unless
/// the guard did.
async fn keep(
    books: Arc<dyn Books>,
    receipt: Arc<Receipt>,
    mut held_for: Option<Span>,
    mut ended: oneshot::Receiver<End>,
) {
    let mut words = WORDS_A_HOLD;
    let end = loop {
        let Some(hold) = held_for else { break ended.await };
        let pause = Duration::from_micros(hold.as_micros()) / words;
        match tokio::time::timeout(pause, &mut ended).await {
            Ok(end) => break end,
            Err(_) => {
                (held_for, words) = match books.running(&receipt).await {
                    Heard::For(hold) => (Some(hold), WORDS_A_HOLD),
                    Heard::Uncounted => (held_for, WORDS_A_HOLD),
                    Heard::Unheard => (held_for, TRIES_A_HOLD),
                    Heard::Over => (None, WORDS_A_HOLD),
                }
            }
        }
    };
    if let Ok(End { ending, cost }) = end {
        books.settle(&receipt, ending, cost).await;
    }
}
