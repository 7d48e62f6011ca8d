//! What is counted of receipts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tollgate::Ending;

use super::table;

/// What became of receipts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiptMetrics {
    issued: Counter,
    settled: Family<OutcomeLabels, Counter>,
    deferred: Counter,
    refused: Family<ReasonLabels, Counter>,
}

/// Why receipts are refused. Each has a series from the start.
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

impl ReceiptMetrics {
    pub(super) fn register(registry: &mut Registry) -> ReceiptMetrics {
        let metrics = ReceiptMetrics::default();
        table::register(registry, "receipts_issued", metrics.issued.clone());
        table::register(registry, "receipts_settled", metrics.settled.clone());
        table::register(registry, "receipts_deferred", metrics.deferred.clone());
        table::register(registry, "receipts_refused", metrics.refused.clone());
        for ending in [Ending::Ok, Ending::Failed, Ending::Running] {
            drop(metrics.settled.get_or_create_owned(&OutcomeLabels { outcome: ending.name() }));
        }
        for reason in REASONS {
            drop(metrics.refused.get_or_create_owned(&ReasonLabels { reason }));
        }
        metrics
    }

    /// A receipt was given.
    pub(crate) fn issued(&self) {
        self.issued.inc();
    }

    /// A receipt was settled, and whether the store has it.
    pub(crate) fn settled(&self, ending: Ending, is_stored: bool) {
        self.settled.get_or_create(&OutcomeLabels { outcome: ending.name() }).inc();
        if !is_stored {
            self.deferred.inc();
        }
    }

    /// A receipt was refused.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }
}
