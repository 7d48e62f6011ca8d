//! Receipts as this server gives and takes them: signed with the keys in force, by one clock, and counted.

pub(crate) mod keys;
#[cfg(test)]
mod tests;
mod unsettled;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::told::Carried;
use tollgate::{Clock, Decision, Ending, Receipt, ReceiptError, ReceiptKeys, Replay, Settled, Span, Timestamp};

use crate::observe::metrics::ReceiptMetrics;
use unsettled::Unsettled;

/// Signs receipts, and opens those that come back.
pub(crate) struct Receipts {
    /// Swapped whole: no request sees half of them.
    keys: ArcSwap<ReceiptKeys>,
    clock: Arc<dyn Clock>,
    unsettled: Unsettled,
    metrics: ReceiptMetrics,
}

/// A receipt on its way to a caller.
pub(crate) struct Signed {
    text: String,
    settle_within: Span,
}

/// A receipt that came back.
pub(crate) struct Opened {
    pub(crate) receipt: Receipt,
    /// From then on it is too late.
    until: Timestamp,
}

impl Receipts {
    pub(crate) fn new(keys: ReceiptKeys, clock: Arc<dyn Clock>, metrics: ReceiptMetrics) -> Receipts {
        let unsettled = Unsettled::new(clock.now());
        Receipts { keys: ArcSwap::from_pointee(keys), clock, unsettled, metrics }
    }

    /// Puts other keys in force.
    pub(crate) fn install(&self, keys: ReceiptKeys) {
        self.keys.store(Arc::new(keys));
    }

    /// The receipt that a decision gives its caller, if it gives one.
    ///
    /// One that is given again lasts no longer than it did the first time: how it ended is not recorded for as long as an
    /// idempotency key holds, and what was refunded once could be refunded again.
    pub(crate) fn sign(&self, decision: &Decision) -> Option<Signed> {
        let receipt = decision.receipt()?;
        let now = self.clock.now();
        let is_again = matches!(decision.replay(), Replay::Again { .. });
        let from = if is_again { now.min(decision.at()) } else { now };
        let until = from.after(receipt.hold());
        if until <= now {
            return None;
        }
        if !is_again {
            self.metrics.issued();
            self.unsettled.issued(until, receipt.hold(), now);
        }
        Some(Signed { text: self.keys.load().sign(receipt, from), settle_within: until.since(now) })
    }

    /// What a caller brings back.
    ///
    /// # Errors
    /// If it is none of ours, or too late.
    pub(crate) fn open(&self, text: &str) -> Result<Opened, ReceiptError> {
        let opened = self.keys.load().open_until(text, self.clock.now());
        let opened = opened.inspect_err(|error| self.metrics.refused(reason(*error)));
        opened.map(|(receipt, until)| Opened { receipt, until })
    }

    /// Counts what became of a receipt. One for a request that goes on is signed anew, and lasts from now on.
    pub(crate) fn settled(&self, opened: &Opened, ending: Ending, settled: &Settled) -> Option<Signed> {
        let (receipt, now) = (&opened.receipt, self.clock.now());
        if !settled.is_replay() {
            self.metrics.settled(ending, settled.is_stored());
            self.unsettled.settled(opened.until, receipt.hold(), now);
        }
        if ending != Ending::Running {
            return None;
        }
        self.unsettled.issued(now.after(receipt.hold()), receipt.hold(), now);
        Some(Signed { text: self.keys.load().sign(receipt, now), settle_within: receipt.hold() })
    }

    /// Counts a receipt that was good and was not settled all the same.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.metrics.refused(reason);
    }

    /// How many receipts wait to be settled, and how many were not in time: of those that were given here, fewer those that were
    /// settled here.
    pub(crate) fn open_and_unsettled(&self) -> (i64, i64) {
        let unsettled = self.unsettled.count(self.clock.now());
        (self.unsettled.open(), unsettled)
    }

    /// By the clock of receipts.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Signed {
    /// As an answer tells it.
    pub(crate) fn carried(&self) -> Carried<'_> {
        Carried { text: &self.text, settle_within: self.settle_within }
    }
}

/// Why a text is no receipt, as metrics and programs call it.
pub(crate) fn reason(error: ReceiptError) -> &'static str {
    match error {
        ReceiptError::Malformed => "malformed",
        ReceiptError::Foreign => "foreign",
        ReceiptError::Forged => "forged",
        ReceiptError::Expired => "expired",
    }
}

/// Nothing of the keys.
impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}
