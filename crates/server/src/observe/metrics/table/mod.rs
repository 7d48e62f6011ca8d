//! The contract of dashboards and alerts: every metric with its type, its labels, what it says and what to do with it.
//!
//! What a scrape says of a family is read from here; `docs/metrics.md` is made from here; a test holds a scrape against it, both ways.

#[cfg(test)]
mod page;
mod rows;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

pub(super) use rows::GROUPS;

/// Metrics that are about one thing.
pub(super) struct Group {
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub(super) title: &'static str,
    /// What there is to say about them together, before the table; Markdown.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub(super) about: &'static str,
    pub(super) families: &'static [Described],
}

/// A metric.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) kind: Kind,
    /// As its samples have it.
    pub(super) name: &'static str,
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page, and for who holds a scrape against it"))]
    pub(super) labels: &'static [&'static str],
    /// What it says, without a full stop.
    pub(super) help: &'static str,
    /// What somebody who sees it can do with it.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the page"))]
    pub(super) advice: &'static str,
}

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    Gauge,
    Histogram,
    /// Always 1: its labels are what it says.
    Info,
    /// Only grows too, under a name that a counter can't have: that of another limiter.
    Untyped,
}

impl Kind {
    pub(super) fn metric_type(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
            Kind::Untyped => MetricType::Unknown,
        }
    }

    /// What is added to a family's name to name its samples.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram | Kind::Untyped => "",
        }
    }
}

impl Described {
    /// The family, without what its kind adds to its name.
    fn family(&self) -> &'static str {
        self.name.strip_suffix(self.kind.suffix()).unwrap_or(self.name)
    }
}

/// What the names of most families begin with.
pub(super) const PREFIX: &str = "tollgate";

/// What the table says of a family, whose name may lack our prefix.
pub(super) fn described(family: &str) -> Option<&'static Described> {
    let ours = |name: &'static str| name.strip_prefix(PREFIX).and_then(|name| name.strip_prefix('_'));
    let is = |described: &&Described| described.family() == family || ours(described.family()) == Some(family);
    GROUPS.iter().flat_map(|group| group.families).find(is)
}

/// What a family says. One that is not in the table says nothing, and fails a test.
pub(super) fn help(family: &str) -> &'static str {
    described(family).map_or("", |described| described.help)
}

/// Registers what is counted as it happens, in the words of the table.
pub(super) fn register(registry: &mut Registry, name: &'static str, metric: impl Metric) {
    registry.register(name, help(name), metric);
}
