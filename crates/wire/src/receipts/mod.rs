//! The receipts of this server: signed with the current keys, by one clock, and counted.

pub mod keys;
#[cfg(test)]
mod tests;
mod unsettled;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::{
    Clock, Decision, Receipt, ReceiptError, ReceiptKeys, Replay, RequestOutcome, SettledReceipt, Span, Timestamp,
};
use tollgate_http::response::SignedReceipt;

pub use keys::KeyAgreement;
use tollgate_telemetry::metrics::ReceiptMetrics;
use unsettled::UnsettledReceipts;

/// Signs receipts, and opens those that return.
pub struct Receipts {
    /// Swapped atomically.
    keys: ArcSwap<ReceiptKeys>,
    clock: Arc<dyn Clock>,
    unsettled: UnsettledReceipts,
    metrics: ReceiptMetrics,
}

/// A signed receipt for a caller.
pub struct IssuedReceipt {
    text: String,
    settle_within: Span,
}

/// A receipt that has been verified.
pub struct OpenReceipt {
    pub receipt: Receipt,
    /// When the receipt expires.
    expires_at: Timestamp,
}

impl Receipts {
    pub fn new(keys: ReceiptKeys, clock: Arc<dyn Clock>, metrics: ReceiptMetrics) -> Receipts {
        let unsettled = UnsettledReceipts::new(clock.now());
        Receipts { keys: ArcSwap::from_pointee(keys), clock, unsettled, metrics }
    }

    /// With a random key and the system clock: for a process whose receipts nobody else settles.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn ephemeral() -> Result<Arc<Receipts>, String> {
        let keys = keys::from_secrets([keys::random_secret()?])?;
        Ok(Arc::new(Receipts::new(keys, Arc::new(tollgate::SystemClock::default()), ReceiptMetrics::default())))
    }

    /// Installs other keys.
    pub fn install(&self, keys: ReceiptKeys) {
        self.keys.store(Arc::new(keys));
    }

    /// The signed receipt of a decision, if it has one.
    ///
    /// The receipt of a replay expires when the first one does: its settlement is not recorded for as long as an
    /// idempotency key is stored, so a refund could be repeated otherwise.
    pub fn sign(&self, decision: &Decision) -> Option<IssuedReceipt> {
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
            self.unsettled.add_issued(until, receipt.hold(), now);
        }
        Some(IssuedReceipt { text: self.keys.load().sign(receipt, from), settle_within: until.since(now) })
    }

    /// Verifies a caller's receipt.
    ///
    /// # Errors
    /// If it was not signed with one of the keys, or has expired.
    pub fn open(&self, text: &str) -> Result<OpenReceipt, ReceiptError> {
        let result = self.keys.load().open_with_expiry(text, self.clock.now());
        let result = result.inspect_err(|error| self.metrics.refused(reason(*error)));
        result.map(|(receipt, expires_at)| OpenReceipt { receipt, expires_at })
    }

    /// Counts a settlement. The receipt of a running request is signed again, and is valid from now on.
    pub fn settled(
        &self,
        open: &OpenReceipt,
        outcome: RequestOutcome,
        settled: &SettledReceipt,
    ) -> Option<IssuedReceipt> {
        let (receipt, now) = (&open.receipt, self.clock.now());
        if !settled.is_replay() {
            self.metrics.settled(outcome.name(), settled.is_stored());
            self.unsettled.add_settled(open.expires_at, receipt.hold(), now);
        }
        if outcome != RequestOutcome::Running {
            return None;
        }
        self.unsettled.add_issued(now.after(receipt.hold()), receipt.hold(), now);
        Some(IssuedReceipt { text: self.keys.load().sign(receipt, now), settle_within: receipt.hold() })
    }

    /// Counts a valid receipt that was not settled.
    pub fn refused(&self, reason: &'static str) {
        self.metrics.refused(reason);
    }

    /// How many receipts are open, and how many expired unsettled: issued here, minus settled here.
    pub fn open_and_unsettled(&self) -> (i64, i64) {
        let unsettled = self.unsettled.count(self.clock.now());
        (self.unsettled.open(), unsettled)
    }

    /// The time by the clock of receipts.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl IssuedReceipt {
    /// The receipt as a response contains it.
    pub fn signed(&self) -> SignedReceipt<'_> {
        SignedReceipt { text: &self.text, settle_within: self.settle_within }
    }
}

/// The name of an error in metrics and responses.
pub fn reason(error: ReceiptError) -> &'static str {
    match error {
        ReceiptError::Malformed => "malformed",
        ReceiptError::Foreign => "foreign",
        ReceiptError::Forged => "forged",
        ReceiptError::Expired => "expired",
    }
}

/// Omits the keys.
impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}
