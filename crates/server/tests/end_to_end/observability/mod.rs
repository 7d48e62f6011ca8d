//! The files of `deploy/observability`: the alerts in promtool, and the dashboard's queries on a Prometheus that scrapes a server
//! under load.

mod alerts;
mod changes;
pub(crate) mod dashboard;
pub(crate) mod prometheus;
mod traffic;

use std::collections::BTreeSet;
use std::fs;

use crate::repository_path;

/// The text of a file in the repository.
#[track_caller]
fn read(name: &str) -> String {
    fs::read_to_string(repository_path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| ["ratelimit_", "tollgate_", "process_"].iter().any(|start| word.starts_with(start))).collect()
}

#[test]
fn alerts_dashboards_and_docs_name_existing_metrics() {
    let page = read("docs/metrics.md");
    let existing = metrics_in(&page);
    let files = [
        "deploy/observability/alerts.yaml",
        "deploy/observability/slo.yaml",
        "deploy/observability/grafana/tollgate.json",
        "docs/observability.md",
        "docs/slo.md",
    ];
    for file in files {
        let text = read(file);
        // A name before an ellipsis represents several metrics.
        let named = metrics_in(&text).into_iter().filter(|name| !name.ends_with('_'));
        for metric in named {
            let of_histogram = ["_bucket", "_count"].iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
            assert!(existing.contains(of_histogram), "{file} names {metric}, which is not in docs/metrics.md");
        }
    }
}
