//! `tollgate counters`: one caller's counters, looked at and changed.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::put;
use super::{DomainArgs, Done, Failure};

/// Counters of a caller.
#[derive(Debug, Args)]
pub(in crate::cli) struct Counters {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show how a caller's counters stand
    #[command(after_help = "Example:\n  tollgate counters show abc123 --attribute 'endpoint=POST /orders'")]
    Show(Which),
    /// Let counters start afresh
    #[command(after_help = "Example:\n  tollgate counters reset abc123 --rule per-key --reason 'ticket 4711'")]
    Reset(Change),
    /// Give units back
    #[command(after_help = "Example:\n  tollgate counters credit abc123 --units 100 --reason 'our fault'")]
    Credit(Moved),
    /// Take units
    #[command(after_help = "Example:\n  tollgate counters debit abc123 --rule per-key --units 100")]
    Debit(Moved),
}

#[derive(Debug, Args)]
struct Which {
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    caller: String,
    /// Of this rule; by default of all
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Another value of a key with several: endpoint='POST /orders'
    #[arg(long, value_name = "NAME=VALUE")]
    attribute: Vec<String>,
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    which: Which,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct Moved {
    #[command(flatten)]
    change: Change,
    /// How many
    #[arg(long, value_name = "N")]
    units: u64,
}

const COLUMNS: Columns = &[
    ("RULE", |item| show::text(&item["rule"])),
    ("KEY", |item| show::text(&item["key"])),
    ("LIMIT", |item| show::limit(&item["limit"])),
    ("USED", |item| show::text(&item["used"])),
    ("LEFT", |item| show::text(&item["remaining"])),
    ("FULL AGAIN", |item| show::time(&item["resets_at"])),
    ("BY", |item| show::text(&item["resolved_by"])),
    ("COUNTED IN", |item| show::text(&item["source"])),
];

const MOVED: Columns = &[
    ("RULE", |item| show::text(&item["rule"])),
    ("KEY", |item| show::text(&item["key"])),
    ("MOVED", |item| show::text(&item["moved"])),
    ("USED", |item| show::text(&item["used"])),
    ("LEFT", |item| show::text(&item["remaining"])),
];

/// Parameters that are no attributes.
const TAKEN: [&str; 2] = ["domain", "rule"];

impl Counters {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let domain = self.domain.domain.as_deref();
        match &self.what {
            What::Show(which) => {
                let mut path = which.path(domain).with("rule", which.rule.as_deref());
                for (name, value) in which.attributes()? {
                    if TAKEN.contains(&name) {
                        let what = format!(
                            "--attribute: an attribute {name} can't be asked for; use --json of `tollgate usage`"
                        );
                        return Err(Failure::Usage(what));
                    }
                    path = path.with(name, Some(value));
                }
                show::tell(remote, &remote.ask(Call::get(path))?, |answer| words(answer, COLUMNS))
            }
            What::Reset(change) => change.ask(remote, domain, "reset", None),
            What::Credit(moved) => moved.change.ask(remote, domain, "credit", Some(moved.units)),
            What::Debit(moved) => moved.change.ask(remote, domain, "debit", Some(moved.units)),
        }
    }
}

impl Which {
    fn path(&self, domain: Option<&str>) -> Path {
        Path::of(&["admin", "v1", "counters", &self.caller]).with("domain", domain)
    }

    fn attributes(&self) -> Result<Vec<(&str, &str)>, Failure> {
        let pair = |text: &'_ String| match text.split_once('=') {
            None | Some(("", _)) => {
                Err(Failure::Usage(format!("--attribute: {} is not NAME=VALUE", show::clean(text))))
            }
            Some(_) => Ok(()),
        };
        self.attribute.iter().try_for_each(pair)?;
        Ok(self.attribute.iter().filter_map(|text| text.split_once('=')).collect())
    }
}

impl Change {
    fn ask(&self, remote: &Remote, domain: Option<&str>, action: &str, units: Option<u64>) -> Done {
        let which = &self.which;
        let attributes: Map<String, Value> =
            which.attributes()?.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut body = Map::new();
        put(&mut body, "action", Some(action));
        put(&mut body, "units", units);
        put(&mut body, "rule", which.rule.as_deref());
        put(&mut body, "reason", self.reason.as_deref());
        body.insert("attributes".to_owned(), Value::Object(attributes));
        let call = Call::new(Method::POST, which.path(domain)).json(Value::Object(body));
        show::tell(remote, &remote.ask(call)?, |answer| words(answer, MOVED))
    }
}

fn words(answer: &Value, columns: Columns) -> String {
    let counters = answer["counters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = match counters.is_empty() {
        true => "no counters\n".to_owned(),
        false => show::Table::new(columns).lines(counters),
    };
    for left in answer["left_out"].as_array().into_iter().flatten() {
        let (rule, why) = (show::text(&left["rule"]), show::text(&left["why"]));
        text.push_str(&format!("left out: {}: {}\n", show::clean(&rule), show::clean(&why)));
    }
    text
}
