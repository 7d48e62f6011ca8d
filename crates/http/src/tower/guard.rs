//! The guard of a request: settles its receipt when the request has ended.
//!
//! The guard travels with the request: from the decision to the handler, and on to the end of the response body. However the
//! request ends (the body ends, the body or the future is dropped, the handler panics), the guard is dropped and settles
//! the receipt.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tollgate_core::Span;

use super::BoxFuture;
use super::spent::Spent;
use tollgate::{Receipt, RequestOutcome};

/// Settles the receipt of a request when it is dropped. Empty if there is nothing to settle.
#[derive(Default)]
pub(super) struct Guard(Option<Box<GuardState>>);

struct GuardState {
    settler: Arc<dyn Settler>,
    receipt: Arc<Receipt>,
    /// Ends the task that extends the slots.
    heartbeat: Option<oneshot::Sender<RequestEnd>>,
    spent: Spent,
    stage: RequestStage,
}

/// The progress of a request. It determines the outcome if the request ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestStage {
    /// The request has not reached the handler.
    Outside,
    /// The handler or the body is running at this moment. If the request ends here, it panicked.
    Working,
    /// No failure so far.
    Well,
    /// The request has failed.
    Failed,
}

/// The outcome of a request, and its reported cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestEnd {
    outcome: RequestOutcome,
    cost: Option<u64>,
}

/// Settles receipts: a limiter with any store.
pub(super) trait Settler: Send + Sync {
    /// Settles immediately if the store never waits; `false` if it may wait.
    fn settle_now(&self, receipt: &Receipt, outcome: RequestOutcome, cost: Option<u64>) -> bool;

    /// Settles a receipt.
    fn settle<'a>(&'a self, receipt: &'a Receipt, outcome: RequestOutcome, cost: Option<u64>) -> BoxFuture<'a, ()>;

    /// Counts a receipt that will not be settled.
    fn abandon(&self);

    /// Extends the slots of a running request.
    fn extend<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, HoldStatus>;
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldStatus {
    /// The shortest slot is held for this long from now on.
    Extended(Span),
    /// No rule counts the slots any more. A later change of rules may count them again.
    NotCounted,
    /// The store is unavailable.
    NotStored,
    /// The receipt is settled.
    Ended,
}

/// How many heartbeats are sent per hold: two may get lost.
const HEARTBEATS_PER_HOLD: u32 = 3;
/// How many are sent while the store is unavailable.
const RETRIES_PER_HOLD: u32 = 12;

impl Guard {
    /// A guard for a receipt. A task on the current runtime extends its slots, whose hold is `shortest_hold`.
    pub(super) fn new(
        settler: Arc<dyn Settler>,
        receipt: Receipt,
        shortest_hold: Option<Span>,
        never_waits: bool,
    ) -> Guard {
        let receipt = Arc::new(receipt);
        let mut heartbeat = None;
        // If the store never waits, the guard settles by itself, and only slots need a task.
        if (shortest_hold.is_some() || !never_waits)
            && let Ok(runtime) = Handle::try_current()
        {
            let (end, ended) = oneshot::channel();
            heartbeat = Some(end);
            runtime.spawn(hold_until_end(settler.clone(), receipt.clone(), shortest_hold, ended));
        }
        let (spent, stage) = (Spent::counted(), RequestStage::Outside);
        Guard(Some(Box::new(GuardState { settler, receipt, heartbeat, spent, stage })))
    }

    /// The handle through which the handler reports the cost.
    pub(super) fn spent(&self) -> Spent {
        self.0.as_ref().map_or_else(Spent::default, |state| state.spent.clone())
    }

    /// Runs a step of the handler or of the body.
    pub(super) fn during<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let Some(state) = &mut self.0 else { return step() };
        let before = std::mem::replace(&mut state.stage, RequestStage::Working);
        let done = step();
        state.stage = if before == RequestStage::Failed { RequestStage::Failed } else { RequestStage::Well };
        done
    }

    /// Marks the request as failed.
    pub(super) fn fail(&mut self) {
        if let Some(state) = &mut self.0 {
            state.stage = RequestStage::Failed;
        }
    }

    /// Ends the request before it has begun. Its slots are released; its units stay spent.
    pub(super) fn forgo(mut self) {
        if let Some(state) = &mut self.0 {
            state.stage = RequestStage::Well;
        }
    }
}

impl Drop for GuardState {
    fn drop(&mut self) {
        let outcome = match self.stage {
            RequestStage::Well => RequestOutcome::Ok,
            RequestStage::Outside | RequestStage::Working | RequestStage::Failed => RequestOutcome::Failed,
        };
        let cost = if self.stage == RequestStage::Outside { Some(0) } else { self.spent.last() };
        if self.settler.settle_now(&self.receipt, outcome, cost) {
            return;
        }
        let end = RequestEnd { outcome, cost };
        let is_sent = self.heartbeat.take().is_some_and(|heartbeat| heartbeat.send(end).is_ok());
        if !is_sent {
            // There is no runtime, or it has stopped: the slots expire.
            self.settler.abandon();
        }
    }
}

/// Extends the slots of a request until it ends, whether or not its body is polled, and settles the receipt then, unless the
/// guard did.
async fn hold_until_end(
    settler: Arc<dyn Settler>,
    receipt: Arc<Receipt>,
    mut shortest_hold: Option<Span>,
    mut ended: oneshot::Receiver<RequestEnd>,
) {
    let mut per_hold = HEARTBEATS_PER_HOLD;
    let end = loop {
        let Some(hold) = shortest_hold else { break ended.await };
        let pause = Duration::from_micros(hold.as_micros()) / per_hold;
        match tokio::time::timeout(pause, &mut ended).await {
            Ok(end) => break end,
            Err(_) => {
                (shortest_hold, per_hold) = match settler.extend(&receipt).await {
                    HoldStatus::Extended(hold) => (Some(hold), HEARTBEATS_PER_HOLD),
                    HoldStatus::NotCounted => (shortest_hold, HEARTBEATS_PER_HOLD),
                    HoldStatus::NotStored => (shortest_hold, RETRIES_PER_HOLD),
                    HoldStatus::Ended => (None, HEARTBEATS_PER_HOLD),
                }
            }
        }
    };
    if let Ok(RequestEnd { outcome, cost }) = end {
        settler.settle(&receipt, outcome, cost).await;
    }
}
