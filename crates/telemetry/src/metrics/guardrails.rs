//! What became of writes that guardrails judged.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::table;

/// Writes by what became of them.
#[derive(Clone, Debug)]
pub struct GuardrailMetrics {
    /// By [`GuardedWrite`].
    writes: Arc<[Counter; GuardedWrite::ALL.len()]>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedWrite {
    /// It refuses little.
    Passed,
    /// It passed, and nothing is known of what it does.
    Unknown,
    /// It waits for a confirmation.
    Held,
    /// It was confirmed.
    Confirmed,
    /// It passed with a warning.
    Warned,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    result: &'static str,
}

impl GuardedWrite {
    pub const ALL: [GuardedWrite; 5] = [
        GuardedWrite::Passed,
        GuardedWrite::Unknown,
        GuardedWrite::Held,
        GuardedWrite::Confirmed,
        GuardedWrite::Warned,
    ];

    /// The value of the label `result`.
    pub const fn name(self) -> &'static str {
        match self {
            GuardedWrite::Passed => "passed",
            GuardedWrite::Unknown => "unknown",
            GuardedWrite::Held => "held",
            GuardedWrite::Confirmed => "confirmed",
            GuardedWrite::Warned => "warned",
        }
    }
}

impl GuardrailMetrics {
    pub(super) fn register(registry: &mut Registry) -> GuardrailMetrics {
        let family = Family::<WriteLabels, Counter>::default();
        table::register(registry, "guardrail_writes", family.clone());
        let counter = |write: GuardedWrite| family.get_or_create_owned(&WriteLabels { result: write.name() });
        GuardrailMetrics { writes: Arc::new(GuardedWrite::ALL.map(counter)) }
    }

    pub fn count(&self, write: GuardedWrite) {
        self.writes[write as usize].inc();
    }
}
