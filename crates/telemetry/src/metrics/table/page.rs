//! Generates `docs/metrics.md` from the table.

use std::fmt::Write as _;

use super::{GROUPS, MetricKind};

const INTRODUCTION: &str = "\
# Metrics

Every metric, and what to do with it. This page is generated from the table in
`crates/telemetry/src/metrics/table/rows.rs`, which also has the help texts of a scrape; a test compares the table with
a scrape.

`GET /metrics` on the admin listener returns OpenMetrics to clients that accept it, such as Prometheus, and the older
Prometheus text format to others. Every family exists from the first scrape on, with 0 where nothing has happened.
Labels have small fixed sets of values, or are names of domains, rules and tiers, up to a bound. Only the ten keys in
`ratelimit_top_denied` are values of callers. Scrape configuration, alerts and dashboards:
[deploy/observability](../deploy/observability/README.md).
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for group in GROUPS {
        let _ = writeln!(page, "\n## {}\n", group.title);
        if !group.about.is_empty() {
            let _ = writeln!(page, "{}\n", group.about.trim());
        }
        page.push_str("| metric | type | labels | meaning | use |\n| --- | --- | --- | --- | --- |\n");
        for row in group.families {
            let labels: Vec<_> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, labels) = (row.name, kind_name(row.kind), labels.join(", "));
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} | {} |", row.help, row.advice);
        }
    }
    page
}

fn kind_name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info",
        MetricKind::Untyped => "untyped",
    }
}

#[test]
fn the_metrics_page_is_up_to_date() {
    tollgate_testing::assert_generated("metrics.md", &page());
}

#[test]
fn every_row_has_texts_that_fit_into_a_table() {
    for row in GROUPS.iter().flat_map(|group| group.families) {
        for text in [row.help, row.advice] {
            assert!(
                !text.is_empty() && !text.ends_with('.') && !text.contains(['\n', '\\', '|']),
                "{}: {text}",
                row.name
            );
        }
        assert_eq!(row.name.ends_with("_total"), row.kind == MetricKind::Counter, "{}", row.name);
    }
}
