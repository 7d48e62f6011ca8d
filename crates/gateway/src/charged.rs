//! What the limits took for a request, until it is settled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use tollgate::{Receipt, RequestOutcome, SettleError, Span, poll_once};
use tollgate_store::Steady;
use tollgate_wire::{Gate, SettleFailure};

use crate::clock;
use crate::forwarded_body::UploadProgress;

/// Settles the receipt of a request when it is dropped. Empty if there is nothing to settle.
#[derive(Default)]
pub(crate) struct Charged(Option<Box<ChargedRequest>>);

struct ChargedRequest {
    ledger: Arc<Ledger>,
    receipt: Arc<Receipt>,
    outcome: RequestOutcome,
    cost: Option<u64>,
    /// The body that its cost is the length of, in parts of so many bytes, if nothing said its length.
    upload: Option<(Arc<UploadProgress>, u64)>,
    /// Its number among those whose slots are extended.
    held: Option<u64>,
}

/// Settles receipts, and extends the slots of running requests.
pub(crate) struct Ledger {
    gate: Arc<Gate>,
    held: [Mutex<HashMap<u64, Held, foldhash::fast::RandomState>>; TABLES],
    next: AtomicU64,
}

/// A running request with slots.
struct Held {
    receipt: Arc<Receipt>,
    every: Span,
    due: Steady,
}

/// The number of tables, each with its own lock. A power of two.
const TABLES: usize = 16;
/// How many times in the time of a hold it is extended: two may get lost.
const EXTENSIONS: u64 = 3;
/// How often is looked for slots to extend.
const INTERVAL: Duration = Duration::from_millis(250);
/// How often, and at which interval, a settlement is repeated while the store can't tell whether it was done.
const MAX_SETTLE_RETRIES: usize = 50;
const SETTLE_RETRY_DELAY: Duration = Duration::from_millis(100);

impl Charged {
    /// The request failed, for reasons that are not its caller's.
    pub(crate) fn fail(&mut self) {
        if let Some(charged) = &mut self.0 {
            charged.outcome = RequestOutcome::Failed;
        }
    }

    /// What the request really cost.
    pub(crate) fn set_cost(&mut self, cost: u64) {
        if let Some(charged) = &mut self.0 {
            charged.cost = Some(cost);
        }
    }

    /// The cost is the length of a body, in parts of so many bytes, as far as it is forwarded.
    pub(crate) fn count_upload(&mut self, upload: Arc<UploadProgress>, bytes: u64) {
        if let Some(charged) = &mut self.0 {
            charged.upload = Some((upload, bytes));
        }
    }

    /// The request was not forwarded: everything is given back.
    pub(crate) fn cancel(mut self) {
        self.fail();
        self.set_cost(0);
    }
}

impl Drop for ChargedRequest {
    fn drop(&mut self) {
        if let Some(number) = self.held {
            self.ledger.table(number).remove(&number);
        }
        let length = |(upload, bytes): &(Arc<UploadProgress>, u64)| upload.bytes().div_ceil(*bytes);
        let (outcome, cost) = (self.outcome, self.cost.or_else(|| self.upload.as_ref().map(length)));
        let gate = &self.ledger.gate;
        if !gate.waits() {
            // What is not settled is counted by the gate's limiter.
            let _ = poll_once(gate.settle(&self.receipt, outcome, cost, &HeaderMap::new(), None));
            return;
        }
        let (ledger, receipt) = (self.ledger.clone(), self.receipt.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { ledger.settle(&receipt, outcome, cost).await });
        }
    }
}

impl Ledger {
    pub(crate) fn new(gate: Arc<Gate>) -> Ledger {
        Ledger { gate, held: Default::default(), next: AtomicU64::new(0) }
    }

    /// Watches over what a request took. Its slots are held for `hold` at a time.
    pub(crate) fn charge(self: &Arc<Self>, receipt: Option<Receipt>, hold: Option<Span>) -> Charged {
        let Some(receipt) = receipt else { return Charged::default() };
        let receipt = Arc::new(receipt);
        let held = hold.map(|hold| self.hold(receipt.clone(), hold));
        let (ledger, outcome, cost) = (self.clone(), RequestOutcome::Ok, None);
        Charged(Some(Box::new(ChargedRequest { ledger, receipt, outcome, cost, upload: None, held })))
    }

    fn hold(&self, receipt: Arc<Receipt>, hold: Span) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let every = Span::from_micros(hold.as_micros() / EXTENSIONS);
        self.table(number).insert(number, Held { receipt, every, due: clock::now().after(every) });
        number
    }

    /// Extends slots, until the server stops.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let mut due = Vec::new();
            let now = clock::now();
            for table in &self.held {
                for held in lock(table).values_mut().filter(|held| held.due <= now) {
                    held.due = now.after(held.every);
                    due.push(held.receipt.clone());
                }
            }
            for receipt in due {
                let ledger = self.clone();
                // A store that is slow for one must not delay the others.
                tokio::spawn(async move {
                    let none = HeaderMap::new();
                    let _ = ledger.gate.settle(&receipt, RequestOutcome::Running, None, &none, None).await;
                });
            }
        }
    }

    async fn settle(&self, receipt: &Receipt, outcome: RequestOutcome, cost: Option<u64>) {
        for _ in 0..MAX_SETTLE_RETRIES {
            match self.gate.settle(receipt, outcome, cost, &HeaderMap::new(), None).await {
                Err(SettleFailure::TooBusy | SettleFailure::Refused(SettleError::Pending)) => {
                    tokio::time::sleep(SETTLE_RETRY_DELAY).await;
                }
                _ => return,
            }
        }
        tracing::warn!("a request could not be settled: its slots expire, and its units stay as reserved");
    }

    fn table(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Held, foldhash::fast::RandomState>> {
        lock(&self.held[number as usize % TABLES])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
