//! `tollgate rule`: rules by API, a layer above the rule files, with versions and states.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Call, Remote};
use super::path::Path;
use super::quota::tag;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::put;
use super::{DomainArgs, Done, rule_file};
use crate::words::counted;

/// Rules by API.
#[derive(Debug, Args)]
pub(in crate::cli) struct Rule {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the rules that were written by API
    #[command(after_help = "Example:\n  tollgate rule list --state shadow")]
    List {
        /// In this state
        #[arg(long, value_name = "STATE")]
        state: Option<State>,
    },
    /// Show a rule, or an old version of it
    #[command(after_help = "Example:\n  tollgate rule get orders --version 3")]
    Get {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// This version
        #[arg(long, value_name = "N")]
        version: Option<u64>,
    },
    /// Put a rule above the files; each write is a new version
    #[command(after_help = "Examples:\n  \
        tollgate rule set orders orders.yaml --dry-run\n  \
        echo '{key: [api_key], limit: 100/minute}' | tollgate rule set orders - --state shadow --reason trial")]
    Set {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// One rule, as rule files have it or in the API's short form, as YAML or JSON; - is standard input
        file: PathBuf,
        /// Its state; active by default
        #[arg(long, value_name = "STATE")]
        state: Option<State>,
        /// Say what would change, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Only if this is its generation
        #[arg(long, value_name = "N")]
        if_match: Option<u64>,
    },
    /// Delete a rule: the file's rule of that name, if there is one, is in force again
    #[command(after_help = "Example:\n  tollgate rule delete orders")]
    Delete {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// List the versions of a rule, the newest first
    #[command(after_help = "Example:\n  tollgate rule versions orders")]
    Versions {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Say what differs between two versions; by default the latest and the one before
    #[command(after_help = "Example:\n  tollgate rule diff orders --from 1 --to 3")]
    Diff {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        #[arg(long, value_name = "N")]
        to: Option<u64>,
    },
    /// Go back to the rule of an old version
    #[command(after_help = "Example:\n  tollgate rule rollback orders 3 --reason 'refused too many'")]
    Rollback {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        version: u64,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give a rule another state
    #[command(after_help = "Example:\n  tollgate rule state orders active --reason 'trial was fine'")]
    State {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        state: State,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// What becomes of a rule.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Written, not in force
    Draft,
    /// In force; it counts and lets all pass
    Shadow,
    /// Waits to be made active; not in force
    Pending,
    /// In force
    Active,
    /// In force as a rule that is switched off
    Off,
}

const COLUMNS: Columns = &[
    ("RULE", |item| show::text(&item["rule_id"])),
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("STATE", |item| show::text(&item["status"])),
    ("VERSION", |item| show::text(&item["version"])),
    ("UPDATED", |item| show::time(&item["updated_at"])),
    ("BY", |item| show::text(&item["author"])),
    ("REASON", |item| show::text(&item["reason"])),
];

const VERSIONS: Columns = &[
    ("VERSION", |item| show::text(&item["version"])),
    ("STATE", |item| show::text(&item["status"])),
    ("CREATED", |item| show::time(&item["created_at"])),
    ("BY", |item| show::text(&item["author"])),
    ("REASON", |item| show::text(&item["reason"])),
];

const CHANGES: Columns = &[
    ("WHAT", |item| show::text(&item["path"])),
    ("BEFORE", |item| show::text(&item["before"])),
    ("AFTER", |item| show::text(&item["after"])),
];

impl Rule {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    /// The path of rules, or of one, or of something of it.
    fn path(&self, parts: &[&str]) -> Path {
        Path::of(&[&["v1", "ratelimit", "config"], parts].concat()).with("domain", self.domain.domain.as_deref())
    }

    fn ask(&self, remote: &Remote) -> Done {
        match &self.what {
            What::List { state } => {
                let path = self.path(&[]).with("state", state.map(State::name));
                let none = "no rules were written by API; those of the files are at /admin/v1/rules";
                show::list(remote, &path, None, COLUMNS, none)
            }
            What::Get { id, version } => {
                let number = version.map(|version| version.to_string());
                let path = match &number {
                    None => self.path(&[id]),
                    Some(number) => self.path(&[id, "versions", number]),
                };
                show::tell(remote, &remote.ask(Call::get(path))?, words)
            }
            What::Set { id, file, state, dry_run, reason, if_match } => {
                let body = rule_file::body(id, file, state.map(State::name), reason.as_deref())?;
                let path = self.path(&[id]).with("dry_run", dry_run.then_some("true"));
                let call = Call::new(Method::PUT, path).json(body).if_match(tag(*if_match).as_deref());
                show::tell(remote, &remote.ask(call)?, if *dry_run { would_be } else { written })
            }
            What::Delete { id } => {
                let answer = remote.ask(Call::delete(self.path(&[id])))?;
                show::tell(remote, &answer, |_| format!("{} is deleted; its versions are kept\n", show::clean(id)))
            }
            What::Versions { id } => {
                show::list(remote, &self.path(&[id, "versions"]), None, VERSIONS, "there are no versions")
            }
            What::Diff { id, from, to } => {
                let number = |number: &Option<u64>| number.map(|number| number.to_string());
                let path = self.path(&[id, "diff"]).with("from", number(from)).with("to", number(to));
                show::tell(remote, &remote.ask(Call::get(path))?, |answer| {
                    let (from, to) = (show::text(&answer["from"]), show::text(&answer["to"]));
                    format!("From version {from} to {to}:\n{}", changes(answer))
                })
            }
            What::Rollback { id, version, reason } => {
                let mut body = Map::new();
                put(&mut body, "version", Some(*version));
                put(&mut body, "reason", reason.as_deref());
                self.post(remote, &[id, "rollback"], body)
            }
            What::State { id, state, reason } => {
                let mut body = Map::new();
                put(&mut body, "state", Some(state.name()));
                put(&mut body, "reason", reason.as_deref());
                self.post(remote, &[id, "state"], body)
            }
        }
    }

    fn post(&self, remote: &Remote, parts: &[&str], body: Map<String, Value>) -> Done {
        let call = Call::new(Method::POST, self.path(parts)).json(Value::Object(body));
        show::tell(remote, &remote.ask(call)?, written)
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Draft => "draft",
            State::Shadow => "shadow",
            State::Pending => "pending",
            State::Active => "active",
            State::Off => "off",
        }
    }
}

/// A rule in words.
fn words(answer: &Value) -> String {
    let mut facts = vec![
        ("rule", show::text(&answer["rule_id"])),
        ("domain", show::text(&answer["domain"])),
        ("state", show::text(&answer["status"])),
        ("version", show::text(&answer["version"])),
        ("by", show::text(&answer["author"])),
        ("reason", show::text(&answer["reason"])),
    ];
    for (name, member) in [("created", "created_at"), ("updated", "updated_at")] {
        facts.extend((!answer[member].is_null()).then(|| (name, show::time(&answer[member]))));
    }
    // A document always has a form in JSON, and JSON has no control characters.
    let rule = serde_json::to_string_pretty(&answer["rule"]).unwrap_or_default();
    format!("{}\n{rule}\n", show::facts(&facts))
}

fn written(answer: &Value) -> String {
    let (rule, status) = (show::text(&answer["rule_id"]), show::text(&answer["status"]));
    let version = show::text(&answer["version"]);
    format!("{} is {status}, version {version}\n{}", show::clean(&rule), warnings(answer))
}

/// What a write would do.
fn would_be(answer: &Value) -> String {
    format!("The rule is sound; nothing was written.\n{}{}", changes(answer), warnings(answer))
}

fn changes(answer: &Value) -> String {
    let changes = answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    match changes.len() {
        0 => "nothing differs\n".to_owned(),
        count => format!("{}{}\n", show::Table::new(CHANGES).lines(changes), counted(count, "change")),
    }
}

fn warnings(answer: &Value) -> String {
    let one = |warning: &Value| match warning["what"].as_str() {
        Some(what) => format!("warning: {}\n", show::clean(what)),
        None => format!("warning: {}\n", show::clean(&show::text(warning))),
    };
    answer["warnings"].as_array().into_iter().flatten().map(one).collect()
}
