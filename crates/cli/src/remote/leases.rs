//! `tollgate leases`: the hot keys of a server, and changes of its leases.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::resource::RequestBody;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};
use super::{CommandError, CommandResult};
use crate::pluralize;

/// The keys in Redis of which a server takes units ahead of requests
///
/// Each server has leases of its own: the commands show and change those of the server that they call.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        tollgate leases --keys 50\n  \
        tollgate leases off --reason 'incident 12'\n  \
        tollgate leases purge ada --rule per-key"
)]
pub(crate) struct Leases {
    #[command(subcommand)]
    action: Option<LeaseAction>,
    /// The number of keys, the busiest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    keys: u64,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum LeaseAction {
    /// Give back everything within a second, and let Redis decide every request of this server
    #[command(after_help = "Example:\n  tollgate leases off --server http://10.0.0.7:8070 --reason 'incident 12'")]
    Off(Reason),
    /// Lease busy keys again
    #[command(after_help = "Example:\n  tollgate leases on --reason 'incident 12 is over'")]
    On(Reason),
    /// Give back what this server holds of keys, and forget the refusals that it remembers
    #[command(after_help = "Examples:\n  \
        tollgate leases purge ada\n  \
        tollgate leases purge 'ada, POST /orders' --rule orders\n  \
        tollgate leases purge --rule per-key --reason 'the counters were restored'\n  \
        tollgate leases purge --all")]
    Purge(Purge),
}

#[derive(Debug, Args)]
struct Reason {
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct Purge {
    /// A caller, or a key as `tollgate leases` shows it
    #[arg(value_name = "KEY")]
    selected: Option<String>,
    /// Only of this rule
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// All keys
    #[arg(long, conflicts_with_all = ["selected", "rule"])]
    all: bool,
    /// Only of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    #[command(flatten)]
    reason: Reason,
}

const COLUMNS: Columns = &[
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("RULE", |item| show::text(&item["rule"])),
    ("KEY", |item| show::text(&item["key"])),
    ("UNITS/S", |item| show::text(&item["units_per_second"])),
    ("CHUNK", |item| show::text(&item["chunk"])),
    ("HELD", |item| show::text(&item["units_held"])),
    ("LOCAL", |item| format!("{:.0} %", item["local_share"].as_f64().unwrap_or_default() * 100.0)),
];

impl Leases {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| match &self.action {
            None => {
                let path = leases(&[]).with("limit", Some(&self.keys.to_string()));
                show::print(client, &client.send(ApiRequest::get(path))?, report)
            }
            Some(LeaseAction::Off(reason)) => switch(client, false, reason),
            Some(LeaseAction::On(reason)) => switch(client, true, reason),
            Some(LeaseAction::Purge(purge)) => purge.send(client),
        })
    }
}

impl Purge {
    fn send(&self, client: &AdminClient) -> CommandResult {
        let Purge { selected, rule, all, domain, reason } = self;
        if selected.is_none() && rule.is_none() && !all {
            let message = "say what to purge: a caller or a key, --rule RULE, or --all";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let body = RequestBody::new().with("all", all.then_some(true)).with_texts(&[
            ("key", selected),
            ("rule", rule),
            ("reason", &reason.reason),
        ]);
        let path = leases(&["purge"]).with("domain", domain.as_deref());
        show::print(client, &client.send(ApiRequest::post(path).json(body))?, purged)
    }
}

fn leases(parts: &[&str]) -> ApiPath {
    ApiPath::new(&[&["admin", "v1", "leases"], parts].concat())
}

fn switch(client: &AdminClient, is_enabled: bool, Reason { reason }: &Reason) -> CommandResult {
    let body = RequestBody::new().with("enabled", Some(is_enabled)).with("reason", reason.as_deref());
    show::print(client, &client.send(ApiRequest::put(leases(&[])).json(body))?, switched)
}

fn text(value: &Value) -> String {
    show::clean(&show::text(value))
}

fn count(value: &Value, noun: &str) -> String {
    pluralize(value.as_u64().unwrap_or(0) as usize, noun)
}

/// Leases that were switched, for people.
fn switched(answer: &Value) -> String {
    let state = if answer["enabled"] == true { "on" } else { "off" };
    format!("leases of {} are {state}: {}\n{}", text(&answer["server"]), text(&answer["detail"]), not_audited(answer))
}

/// What was purged, for people.
fn purged(answer: &Value) -> String {
    let (keys, units) = (count(&answer["keys"], "key"), count(&answer["units_returned"], "unit"));
    let refusals = count(&answer["refusals"], "remembered refusal");
    format!(
        "{}: {keys} purged, {units} given back, {refusals} dropped; other servers are unchanged\n{}",
        text(&answer["server"]),
        not_audited(answer)
    )
}

fn not_audited(answer: &Value) -> &'static str {
    if answer["audited"] == false {
        "warning: this is not in the audit log, which could not be written; the server's log has it\n"
    } else {
        ""
    }
}

/// The leases of a server, for people.
fn report(leases: &Value) -> String {
    if leases["available"] == false {
        return "nothing is leased: the counters of this server are in memory, and need no calls\n".to_owned();
    }
    if leases["enabled"] == false {
        return "leases are off: Redis decides every request of this server; `tollgate leases on` switches them on\n"
            .to_owned();
    }
    let (units, calls) = (&leases["units"], &leases["calls"]);
    let mut report = format!(
        "{} leased, {} held\n\
         units: {} taken, {} spent, {} returned, {} expired\n\
         calls: {} for requests without units, {} ahead of requests, {} to give back; {} refusals without a call\n",
        count(&leases["leased_keys"], "key"),
        count(&leases["units_held"], "unit"),
        text(&units["taken"]),
        text(&units["spent"]),
        text(&units["returned"]),
        text(&units["expired"]),
        text(&calls["miss"]),
        text(&calls["ahead"]),
        text(&calls["back"]),
        text(&leases["refusals"]),
    );
    if let Some(advanced) = units["advanced"].as_u64().filter(|advanced| *advanced > 0) {
        let (units, calls) = (pluralize(advanced as usize, "unit"), count(&calls["debit"], "call"));
        report.push_str(&format!("ahead: {units} admitted before Redis counted them, with {calls}\n"));
    }
    if let Some(keys) = leases["keys"].as_array().filter(|keys| !keys.is_empty()) {
        report.push('\n');
        report.push_str(&TextTable::new(COLUMNS).lines(keys));
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_say_which_server_and_what_was_done() {
        let off = json!({"server": "host-1", "enabled": false, "detail": "on this server", "audited": true});
        assert_eq!(switched(&off), "leases of host-1 are off: on this server\n");
        let answer = json!({"server": "host-1", "keys": 1, "units_returned": 12, "refusals": 0, "audited": false});
        let text = purged(&answer);
        assert!(
            text.starts_with("host-1: 1 key purged, 12 units given back, 0 remembered refusals dropped; other servers"),
            "{text}"
        );
        assert!(text.contains("not in the audit log"), "{text}");
    }

    #[test]
    fn units_that_were_admitted_ahead_are_counted() {
        let leases = |advanced: u64| {
            report(&json!({
                "available": true, "enabled": true, "leased_keys": 2, "units_held": 30,
                "units": {"taken": 100, "spent": 60, "returned": 10, "expired": 0, "advanced": advanced},
                "calls": {"miss": 4, "ahead": 3, "back": 2, "debit": 1}, "refusals": 0,
            }))
        };
        assert!(
            leases(1).ends_with("\nahead: 1 unit admitted before Redis counted them, with 1 call\n"),
            "{}",
            leases(1)
        );
        assert!(leases(250).contains("\nahead: 250 units admitted"), "{}", leases(250));
        assert!(!leases(0).contains("ahead: "), "{}", leases(0));
    }

    #[test]
    fn a_server_without_leases_says_why() {
        assert!(report(&json!({"available": false, "enabled": false})).contains("in memory"));
        assert!(report(&json!({"available": true, "enabled": false})).contains("tollgate leases on"));
        // A server of an earlier version.
        assert!(report(&json!({"enabled": true, "leased_keys": 1})).starts_with("1 key leased, 0 units held\n"));
    }
}
