//! How long changes take from being written to being in force.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tollgate_core::Timestamp;

use super::table;

/// The time from a change being written to it being in force on this server, by kind.
#[derive(Clone, Debug)]
pub struct ChangeMetrics {
    /// By [`ChangeKind`].
    by_kind: Arc<[Histogram; ChangeKind::ALL.len()]>,
}

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Rule files: rules, and the limits of tiers.
    Files,
    /// A rule by API.
    Rule,
    /// A caller's tier and overrides.
    Quota,
    Block,
    Emergency,
    Switch,
    /// A token of the admin API.
    Token,
}

/// A change, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenChange {
    pub kind: ChangeKind,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// The ends of the buckets, in seconds. The objectives are among them: 1 s, 5 s and 60 s.
const BUCKETS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

impl ChangeKind {
    pub const ALL: [ChangeKind; 7] = [
        ChangeKind::Files,
        ChangeKind::Rule,
        ChangeKind::Quota,
        ChangeKind::Block,
        ChangeKind::Emergency,
        ChangeKind::Switch,
        ChangeKind::Token,
    ];

    /// The value of the label `kind`.
    pub const fn name(self) -> &'static str {
        match self {
            ChangeKind::Files => "files",
            ChangeKind::Rule => "rule",
            ChangeKind::Quota => "quota",
            ChangeKind::Block => "block",
            ChangeKind::Emergency => "emergency",
            ChangeKind::Switch => "switch",
            ChangeKind::Token => "token",
        }
    }
}

impl ChangeMetrics {
    pub(super) fn register(registry: &mut Registry) -> ChangeMetrics {
        let family = Family::<KindLabels, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        table::register(registry, "change_in_force_seconds", family.clone());
        let histogram = |kind: ChangeKind| family.get_or_create_owned(&KindLabels { kind: kind.name() });
        ChangeMetrics { by_kind: Arc::new(ChangeKind::ALL.map(histogram)) }
    }

    /// A change is in force. One that was written by a clock ahead of this one took no time.
    pub fn in_force(&self, change: WrittenChange, now: Timestamp) {
        self.by_kind[change.kind as usize].observe(now.since(change.at).as_micros() as f64 / 1e6);
    }
}
