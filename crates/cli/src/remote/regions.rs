//! `tollgate regions`: the other regions, as a server sees them.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::ApiRequest;
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};

/// The other regions, as a server sees them: whether debits arrive, how late, and what that means for rules
///
/// Each server sees them by itself. Lag and calls are those of the last minute.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate regions\n  \
    tollgate regions --server http://10.1.0.7:8070\n  \
    tollgate regions --json")]
pub(crate) struct Regions {
    #[command(flatten)]
    server: ServerArgs,
}

const REGIONS: Columns = &[
    ("REGION", |item| show::text(&item["name"])),
    ("DEBITS", link),
    ("OLDEST", |item| seconds(&item["oldest_seconds"])),
    ("WAITING", |item| show::text(&item["waiting"])),
    ("LAG P50", |item| quantile(&item["lag"]["p50"])),
    ("LAG P99", |item| quantile(&item["lag"]["p99"])),
    ("CALLS P99", |item| quantile(&item["calls"]["p99"])),
    ("NODES AWAY", nodes),
    ("SERVERS", |item| show::text(&item["servers"])),
    ("SENT", |item| show::text(&item["units"]["sent"])),
    ("NO ANSWER", |item| show::text(&item["units"]["unsure"])),
    ("DROPPED", |item| show::text(&item["units"]["dropped"])),
];

const RULES: Columns = &[
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("RULE", |item| show::text(&item["rule"])),
    ("MODE", |item| show::text(&item["mode"])),
    ("REGION", |item| show::text(&item["terms"])),
];

/// The step of regions that are apart; those below it lower limits.
const APART: u64 = 7;

impl Regions {
    pub(crate) fn run(&self) -> ExitCode {
        let path = ApiPath::new(&["admin", "v1", "regions"]);
        super::run(&self.server, |client| show::print(client, &client.send(ApiRequest::get(path))?, report))
    }
}

/// `together`, `lagging 3/6`, `apart`; of the server's own region nothing is debited.
fn link(region: &Value) -> String {
    match (region["link"].as_str(), region["step"].as_u64()) {
        (None, _) => "(this region)".to_owned(),
        (Some("lagging"), Some(step)) => format!("lagging {step}/{}", APART - 1),
        (Some(link), _) => link.to_owned(),
    }
}

fn seconds(value: &Value) -> String {
    value.as_f64().map_or_else(
        || "-".to_owned(),
        |seconds| match seconds {
            0.0 => "0".to_owned(),
            0.0..1.0 => format!("{:.0} ms", seconds * 1e3),
            _ => format!("{seconds:.1} s"),
        },
    )
}

/// An upper bound. The last one says only that it is above the one before.
fn quantile(value: &Value) -> String {
    const LAST_BOUND: f64 = 10.0;
    if value.as_f64() >= Some(LAST_BOUND) { "> 2 s".to_owned() } else { seconds(value) }
}

/// `1 of 3`.
fn nodes(region: &Value) -> String {
    let nodes = region["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let away = nodes.iter().filter(|node| node["state"] != "closed").count();
    format!("{away} of {}", nodes.len())
}

/// Regions and rules, for people.
fn report(answer: &Value) -> String {
    let list = |name: &str| answer[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut report = match answer["available"] == true {
        true => TextTable::new(REGIONS).lines(list("regions")),
        false => "this server knows no other regions: set `regions` (docs/regions.md)\n".to_owned(),
    };
    match list("rules") {
        [] => report.push_str("no rule has a `region`: each region counts by itself, with the whole limit\n"),
        rules => {
            report.push('\n');
            report.push_str(&TextTable::new(RULES).lines(rules));
        }
    }
    if let Some(omitted) = answer["omitted"].as_u64().filter(|omitted| *omitted > 0) {
        report.push_str(&format!("and {omitted} more rules that are not listed\n"));
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn regions_are_reported_with_what_is_late() {
        let other = |name: &str, link: &str, step: u64| {
            json!({"name": name, "this": false, "link": link, "step": step, "oldest_seconds": 0.75, "waiting": 12,
                "lag": {"p50": 0.15, "p99": 1.0}, "calls": {"p50": null, "p99": null}, "servers": 2,
                "units": {"sent": 900, "unsure": 3, "dropped": 0},
                "nodes": [{"state": "closed"}, {"state": if step == APART { "open" } else { "closed" }}]})
        };
        let here = json!({"name": "us-east", "this": true, "servers": 1, "nodes": []});
        let regions = [here, other("eu-west", "lagging", 3), other("us-west", "apart", APART)];
        let rules = [json!({"domain": "shop", "rule": "search", "mode": "enforce", "terms": "global: {apart: share}"})];
        let text = report(&json!({"available": true, "regions": regions, "rules": rules, "omitted": 1}));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..6], ["us-east", "(this", "region)", "-", "-", "-"]);
        let shared = ["750", "ms", "12", "150", "ms", "1.0", "s"];
        assert_eq!(
            lines[2],
            [&["eu-west", "lagging", "3/6"], &shared[..], &["-", "0", "of", "2", "2", "900", "3", "0"]].concat()
        );
        assert_eq!(lines[3][..2], ["us-west", "apart"]);
        assert_eq!(lines[3][10..13], ["1", "of", "2"]);
        assert_eq!(lines[6], ["shop", "search", "enforce", "global:", "{apart:", "share}"]);
        assert!(text.ends_with("and 1 more rules that are not listed\n"), "{text}");
        let alone = report(&json!({"available": false, "regions": [], "rules": [], "omitted": 0}));
        assert_eq!(alone.lines().count(), 2, "{alone}");
    }
}
