//! What is in `deploy/observability`, as it is there: alerts by promtool, and the dashboard's queries against a Prometheus that
//! scrapes a server with traffic.

mod alerts;
mod dashboard;
mod prometheus;
mod traffic;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A path in the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap().join(name)
}

/// A file of it.
#[track_caller]
fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The metrics that a text names.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| ["ratelimit_", "tollgate_", "process_"].iter().any(|start| word.starts_with(start))).collect()
}

#[test]
fn only_metrics_that_there_are_are_spoken_of() {
    let page = read("docs/metrics.md");
    let there_are = metrics_in(&page);
    let files =
        ["deploy/observability/alerts.yaml", "deploy/observability/grafana/tollgate.json", "docs/observability.md"];
    for file in files {
        let text = read(file);
        // An ellipsis stands for several.
        let spoken_of = metrics_in(&text).into_iter().filter(|name| !name.ends_with('_'));
        for metric in spoken_of {
            let of_histogram = metric.strip_suffix("_bucket").unwrap_or(metric);
            assert!(there_are.contains(of_histogram), "{file} speaks of {metric}, which docs/metrics.md does not have");
        }
    }
}
