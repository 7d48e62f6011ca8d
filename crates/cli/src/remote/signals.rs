//! `tollgate signals`: what looks like abuse.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::ApiRequest;
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};

/// Signals that are raised: many distinct values of an attribute behind one value of another
///
/// The signals are in the rule files. Keys and examples are shown to tokens with the scope `audit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate signals\n  \
    tollgate signals --signal accounts-per-address --limit 100\n  \
    tollgate signals --json")]
pub(crate) struct Signals {
    /// Only this signal
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// Only of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The number of keys, those with the most values first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    limit: u64,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: Columns = &[
    ("SIGNAL", |item| show::text(&item["signal"])),
    ("KEY", |item| show::text(&item["key"])),
    ("COUNT", |item| show::text(&item["count"])),
    ("OF", |item| show::text(&item["distinct"])),
    ("THRESHOLD", |item| show::text(&item["threshold"])),
    ("SINCE", |item| show::time(&item["since"])),
    ("EXAMPLES", |item| examples(&item["examples"])),
];

/// Examples in a line of a table.
const SHOWN_EXAMPLES: usize = 3;

impl Signals {
    pub(crate) fn run(&self) -> ExitCode {
        let path = ApiPath::new(&["admin", "v1", "signals"])
            .with("limit", Some(&self.limit.to_string()))
            .with("domain", self.domain.as_deref())
            .with("signal", self.signal.as_deref());
        super::run(&self.server, |client| show::print(client, &client.send(ApiRequest::get(path))?, report))
    }
}

fn examples(values: &Value) -> String {
    let values: Vec<_> = values.as_array().into_iter().flatten().map(show::text).collect();
    let more = if values.len() > SHOWN_EXAMPLES { ", …" } else { "" };
    format!("{}{more}", values[..values.len().min(SHOWN_EXAMPLES)].join(", "))
}

/// The raised signals, for people.
fn report(answer: &Value) -> String {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if answer["signals"].as_array().is_none_or(Vec::is_empty) {
        return "the rules have no signals: write `signals:` in a domain to count, for instance, the accounts of an address\n"
            .to_owned();
    }
    if items.is_empty() {
        return "no signal is raised\n".to_owned();
    }
    let mut report = TextTable::new(COLUMNS).lines(items);
    if let Some(omitted) = answer["omitted"].as_u64().filter(|omitted| *omitted > 0) {
        report.push_str(&format!("and {omitted} more that are not listed\n"));
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_have_a_line_for_each_key() {
        assert!(report(&json!({"signals": [], "items": []})).starts_with("the rules have no signals"));
        assert_eq!(report(&json!({"signals": [{"signal": "s"}], "items": []})), "no signal is raised\n");
        let item = json!({"signal": "accounts-per-address", "key": "203.0.113.7", "count": 41, "distinct": "account",
            "threshold": 40, "since": "2026-11-16T09:00:00Z", "examples": ["a", "b", "c", "d"]});
        let text = report(&json!({"signals": [{}], "items": [item], "omitted": 2}));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("SIGNAL"), "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words[..5], ["accounts-per-address", "203.0.113.7", "41", "account", "40"]);
        assert!(lines[1].ends_with("a, b, c, …"), "{text}");
        assert_eq!(lines[2], "and 2 more that are not listed");
    }
}
