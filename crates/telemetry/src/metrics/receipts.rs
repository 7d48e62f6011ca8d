//! Metrics of receipts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::table;

/// Metrics of receipts.
#[derive(Clone, Debug, Default)]
pub struct ReceiptMetrics {
    issued: Counter,
    settled: Family<OutcomeLabels, Counter>,
    deferred: Counter,
    refused: Family<ReasonLabels, Counter>,
}

/// The reasons for refusals. Each has a series from the start.
const REASONS: [&str; 8] =
    ["already_settled", "bad_cost", "expired", "foreign", "forged", "malformed", "pending", "too_busy"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The outcomes of requests with a receipt.
const OUTCOMES: [&str; 3] = ["ok", "failed", "running"];

impl ReceiptMetrics {
    pub(super) fn register(registry: &mut Registry) -> ReceiptMetrics {
        let metrics = ReceiptMetrics::default();
        table::register(registry, "receipts_issued", metrics.issued.clone());
        table::register(registry, "receipts_settled", metrics.settled.clone());
        table::register(registry, "receipts_deferred", metrics.deferred.clone());
        table::register(registry, "receipts_refused", metrics.refused.clone());
        for outcome in OUTCOMES {
            drop(metrics.settled.get_or_create_owned(&OutcomeLabels { outcome }));
        }
        for reason in REASONS {
            drop(metrics.refused.get_or_create_owned(&ReasonLabels { reason }));
        }
        metrics
    }

    /// Counts an issued receipt.
    pub fn issued(&self) {
        self.issued.inc();
    }

    /// Counts a settled receipt, and whether the store has it already.
    pub fn settled(&self, outcome: &'static str, is_stored: bool) {
        self.settled.get_or_create(&OutcomeLabels { outcome }).inc();
        if !is_stored {
            self.deferred.inc();
        }
    }

    /// Counts a refused receipt.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }
}
