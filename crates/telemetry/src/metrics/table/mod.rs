//! Every metric with its type, its labels, its help text and advice for operators.
//!
//! Scrapes take the help texts from here, and `docs/metrics.md` is generated from here. A test compares a scrape with the table, in
//! both directions.

#[cfg(test)]
mod page;
mod rows;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

pub use rows::GROUPS;

/// A section of the page.
pub struct MetricGroup {
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub title: &'static str,
    /// An introduction before the table, in Markdown.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub about: &'static str,
    pub families: &'static [MetricInfo],
}

/// A metric.
#[derive(Debug)]
pub struct MetricInfo {
    pub kind: MetricKind,
    /// The name of its samples.
    pub name: &'static str,
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page and the tests"))]
    pub labels: &'static [&'static str],
    /// The help text, without a full stop.
    pub help: &'static str,
    /// What to do with it.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub advice: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases.
    Counter,
    Gauge,
    Histogram,
    /// Always 1; the labels carry the information.
    Info,
    /// A counter under another limiter's name, which a counter can't have in OpenMetrics.
    Untyped,
}

impl MetricKind {
    pub fn metric_type(self) -> MetricType {
        match self {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
            MetricKind::Info => MetricType::Info,
            MetricKind::Untyped => MetricType::Unknown,
        }
    }

    /// The suffix of the samples' names.
    fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram | MetricKind::Untyped => "",
        }
    }
}

impl MetricInfo {
    /// The name of the family, without the suffix of its kind.
    fn family(&self) -> &'static str {
        self.name.strip_suffix(self.kind.suffix()).unwrap_or(self.name)
    }
}

/// The prefix of most families.
pub const PREFIX: &str = "tollgate";

/// Finds a family by its name, with or without the prefix.
pub fn find(family: &str) -> Option<&'static MetricInfo> {
    let stripped = |name: &'static str| name.strip_prefix(PREFIX).and_then(|name| name.strip_prefix('_'));
    let matches = |metric: &&MetricInfo| metric.family() == family || stripped(metric.family()) == Some(family);
    GROUPS.iter().flat_map(|group| group.families).find(matches)
}

/// The help text of a family. One that is not in the table has none, and fails a test.
pub fn help(family: &str) -> &'static str {
    find(family).map_or("", |metric| metric.help)
}

/// Registers a metric with its help text.
pub fn register(registry: &mut Registry, name: &'static str, metric: impl Metric) {
    registry.register(name, help(name), metric);
}
