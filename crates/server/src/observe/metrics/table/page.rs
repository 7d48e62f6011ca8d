//! `docs/metrics.md`, made from the table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{GROUPS, Kind};

const BEGINNING: &str = "\
# Metrics

Every metric, with what to do with it. This page is made from the table in `crates/server/src/observe/metrics/table/rows.rs`, from
which the server also takes what it says of them; a test holds a scrape against it.

`GET /metrics` on the admin listener, as OpenMetrics for those who accept it (Prometheus does) and in Prometheus's older
text format for all others. Every family is there from the first scrape on, with 0 where nothing has happened. Labels come from small
fixed sets, or are the names of domains, rules and tiers, up to a bound; no label but that of the ten keys in `ratelimit_top_denied`
has anything of a caller in it. To scrape, to be woken and to look at: [deploy/observability](../deploy/observability/README.md).
";

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    for group in GROUPS {
        let _ = writeln!(page, "\n## {}\n", group.title);
        if !group.about.is_empty() {
            let _ = writeln!(page, "{}\n", group.about.trim());
        }
        page.push_str(
            "| metric | type | labels | what it says | what to do with it |\n| --- | --- | --- | --- | --- |\n",
        );
        for row in group.families {
            let labels: Vec<_> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, labels) = (row.name, word(row.kind), labels.join(", "));
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} | {} |", row.help, row.advice);
        }
    }
    page
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
        Kind::Untyped => "untyped",
    }
}

#[test]
fn the_metrics_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/metrics.md is not what the table says; write it anew with UPDATE_DOCS=1");
}

#[test]
fn every_row_says_something_that_fits_on_a_line_and_in_a_table() {
    for row in GROUPS.iter().flat_map(|group| group.families) {
        for text in [row.help, row.advice] {
            assert!(
                !text.is_empty() && !text.ends_with('.') && !text.contains(['\n', '\\', '|']),
                "{}: {text}",
                row.name
            );
        }
        assert_eq!(row.name.ends_with("_total"), row.kind == Kind::Counter, "{}", row.name);
    }
}
