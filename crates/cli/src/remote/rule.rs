//! `tollgate rule`: rules by API, a layer above the rule files, with versions and states.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::quota::entity_tag;
use super::resource::{Action, RequestBody, Resource};
use super::show::{self, Columns};
use super::{CommandError, CommandResult, ErrorResponse, in_force, rule_file, write_stdout};
use crate::pluralize;

#[derive(Debug, Subcommand)]
pub(crate) enum RuleAction {
    /// List the rules in force, of files and by API
    #[command(after_help = "Examples:\n  tollgate rule list\n  tollgate rule list --state draft")]
    List {
        /// Only rules that were written by API, in force or not
        #[arg(long)]
        by_api: bool,
        /// Only rules by API in this state
        #[arg(long, value_name = "STATE")]
        state: Option<RuleState>,
    },
    /// Show a rule, or an old version of a rule by API
    #[command(after_help = "Example:\n  tollgate rule get orders --version 3")]
    Get {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// The version
        #[arg(long, value_name = "N")]
        version: Option<u64>,
    },
    /// Show the rule files that the server holds, because they would refuse much of the recent traffic
    Files,
    /// Release rule files that are held: all servers that hold this version put it in force
    #[command(after_help = "Example:\n  tollgate rule release 3f2a9c01d4e5b6a7 --reason 'as announced'")]
    Release {
        /// The version of the files, as `tollgate rule files` shows it
        version: String,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Write a rule that overrides the files; each write is a new version
    #[command(after_help = "Examples:\n  \
        tollgate rule set orders orders.yaml --dry-run\n  \
        echo '{key: [api_key], limit: 100/minute}' |\n    \
        tollgate rule set orders - --state shadow --reason trial")]
    Set {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// One rule, in the format of rule files or the API's short form, as YAML or JSON; - is standard input
        file: PathBuf,
        /// The state; active by default
        #[arg(long, value_name = "STATE")]
        state: Option<RuleState>,
        /// Show what would change, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Only if this is the generation of the rule
        #[arg(long, value_name = "N")]
        if_match: Option<u64>,
    },
    /// Delete a rule: a rule of that name in the files is in force again
    #[command(after_help = "Example:\n  tollgate rule delete orders")]
    Delete {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// List the versions of a rule, the newest first
    #[command(after_help = "Example:\n  tollgate rule versions orders")]
    Versions {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Show the differences between two versions; by default the latest two
    #[command(after_help = "Example:\n  tollgate rule diff orders --from 1 --to 3")]
    Diff {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// The older version
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// The newer version
        #[arg(long, value_name = "N")]
        to: Option<u64>,
    },
    /// Restore an old version of a rule
    #[command(after_help = "Example:\n  tollgate rule rollback orders 3 --reason 'refused too many'")]
    Rollback {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// The version to restore
        version: u64,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Change the state of a rule
    #[command(after_help = "Example:\n  tollgate rule state orders active --reason 'trial was fine'")]
    State {
        /// The name of the rule
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        /// The new state
        state: RuleState,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// The state of a rule.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RuleState {
    /// Written, not in force
    Draft,
    /// In force; it counts and denies nothing
    Shadow,
    /// Waits for activation; not in force
    Pending,
    /// In force
    Active,
    /// In force, but switched off
    Off,
}

const RULES: Resource = Resource {
    path: &["v1", "ratelimit", "config"],
    columns: &[
        ("RULE", |item| show::text(&item["rule_id"])),
        ("DOMAIN", |item| show::text(&item["domain"])),
        ("STATE", |item| show::text(&item["status"])),
        ("VERSION", |item| show::text(&item["version"])),
        ("UPDATED", |item| show::time(&item["updated_at"])),
        ("BY", |item| show::text(&item["author"])),
        ("REASON", |item| show::text(&item["reason"])),
    ],
    empty: "no rules were written by API; `tollgate rule list` lists those in force",
};

const VERSIONS: Resource = Resource {
    path: RULES.path,
    columns: &[
        ("VERSION", |item| show::text(&item["version"])),
        ("STATE", |item| show::text(&item["status"])),
        ("CREATED", |item| show::time(&item["created_at"])),
        ("BY", |item| show::text(&item["author"])),
        ("REASON", |item| show::text(&item["reason"])),
    ],
    empty: "there are no versions",
};

const CHANGES: Columns = &[
    ("WHAT", |item| show::text(&item["path"])),
    ("BEFORE", |item| show::text(&item["before"])),
    ("AFTER", |item| show::text(&item["after"])),
];

const FILES: [&str; 3] = ["admin", "v1", "files"];

/// The held files, for people.
fn held_files(held: &Value) -> String {
    if !held.is_object() {
        return "no rule files are held\n".to_owned();
    }
    let fields = [
        ("version", show::text(&held["version"])),
        ("since", show::time(&held["since"])),
        ("why", show::text(&held["why"])),
    ];
    show::fields(&fields)
}

impl Action for RuleAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        let post = |parts: &[&str], body: RequestBody| {
            let response = client.send(ApiRequest::post(RULES.path(parts, domain)).json(body))?;
            show::print(client, &response, written)
        };
        match self {
            RuleAction::List { by_api: false, state: None } => in_force::list(client, domain),
            RuleAction::List { state, .. } => {
                RULES.list(client, &RULES.path(&[], domain).with("state", state.map(RuleState::name)), None)
            }
            RuleAction::Get { id, version } => {
                let number = version.map(|version| version.to_string());
                let path = match &number {
                    None => RULES.path(&[id], domain),
                    Some(number) => RULES.path(&[id, "versions", number], domain),
                };
                match client.send(ApiRequest::get(path)) {
                    // A rule of a file has no versions.
                    Err(CommandError::Rejected(response)) if response.code() == "not_found" && version.is_none() => {
                        show_in_force(client, domain, id, response)
                    }
                    response => show::print(client, &response?, to_text),
                }
            }
            RuleAction::Files => {
                let response = client.send(ApiRequest::get(ApiPath::new(&FILES)))?;
                show::print(client, &response, |answer| held_files(&answer["held"]))
            }
            RuleAction::Release { version, reason } => {
                let path = ApiPath::new(&[&FILES[..], &[version, "release"]].concat());
                let body = RequestBody::new().with_texts(&[("reason", reason)]);
                let done = format!("{version} is released\n");
                show::print(client, &client.send(ApiRequest::post(path).json(body))?, |_| done)
            }
            RuleAction::Set { id, file, state, dry_run, reason, if_match } => {
                let body = rule_file::body(id, file, state.map(RuleState::name), reason.as_deref())?;
                let path = RULES.path(&[id], domain).with("dry_run", dry_run.then_some("true"));
                let request = ApiRequest::put(path).json_text(body).if_match(entity_tag(*if_match).as_deref());
                show::print(client, &client.send(request)?, if *dry_run { dry_run_result } else { written })
            }
            RuleAction::Delete { id } => {
                let done = format!("{} is deleted; its versions are retained", show::clean(id));
                Resource::delete(client, RULES.path(&[id], domain), &done)
            }
            RuleAction::Versions { id } => VERSIONS.list(client, &VERSIONS.path(&[id, "versions"], domain), None),
            RuleAction::Diff { id, from, to } => {
                let number = |number: &Option<u64>| number.map(|number| number.to_string());
                let path = RULES.path(&[id, "diff"], domain).with("from", number(from)).with("to", number(to));
                show::print(client, &client.send(ApiRequest::get(path))?, |diff| {
                    let (from, to) = (show::text(&diff["from"]), show::text(&diff["to"]));
                    format!("From version {from} to {to}:\n{}", changes(diff))
                })
            }
            RuleAction::Rollback { id, version, reason } => {
                let body = RequestBody::new().with("version", Some(*version)).with("reason", reason.as_deref());
                post(&[id, "rollback"], body)
            }
            RuleAction::State { id, state, reason } => {
                let body = RequestBody::new().with("state", Some(state.name())).with("reason", reason.as_deref());
                post(&[id, "state"], body)
            }
        }
    }
}

/// Shows the rules of this name that are in force; without one, the error of the server.
fn show_in_force(client: &AdminClient, domain: Option<&str>, id: &str, error: ErrorResponse) -> CommandResult {
    let rules = in_force::find(client, domain, id)?;
    if rules.is_empty() {
        return Err(CommandError::Rejected(error));
    }
    let text: Vec<String> =
        rules.iter().map(|rule| if client.json { format!("{rule}\n") } else { in_force::to_text(rule) }).collect();
    write_stdout(text.join(if client.json { "" } else { "\n" }))
}

impl RuleState {
    fn name(self) -> &'static str {
        match self {
            RuleState::Draft => "draft",
            RuleState::Shadow => "shadow",
            RuleState::Pending => "pending",
            RuleState::Active => "active",
            RuleState::Off => "off",
        }
    }
}

/// A rule as text.
fn to_text(response: &Value) -> String {
    let mut fields = vec![
        ("rule", show::text(&response["rule_id"])),
        ("domain", show::text(&response["domain"])),
        ("state", show::text(&response["status"])),
        ("version", show::text(&response["version"])),
        ("by", show::text(&response["author"])),
        ("reason", show::text(&response["reason"])),
    ];
    for (name, member) in [("created", "created_at"), ("updated", "updated_at")] {
        fields.extend((!response[member].is_null()).then(|| (name, show::time(&response[member]))));
    }
    // Serialisation of JSON can't fail, and JSON has no control characters.
    let rule = serde_json::to_string_pretty(&response["rule"]).unwrap_or_default();
    format!("{}\n{rule}\n", show::fields(&fields))
}

fn written(response: &Value) -> String {
    let (rule, status) = (show::text(&response["rule_id"]), show::text(&response["status"]));
    let version = show::text(&response["version"]);
    format!("{} is {status}, version {version}\n{}", show::clean(&rule), warnings(response))
}

/// The result of a dry run.
fn dry_run_result(response: &Value) -> String {
    format!("The rule is valid; nothing was written.\n{}{}", changes(response), warnings(response))
}

fn changes(response: &Value) -> String {
    let changes = response["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    match changes.len() {
        0 => "no changes\n".to_owned(),
        count => format!("{}{}\n", show::TextTable::new(CHANGES).lines(changes), pluralize(count, "change")),
    }
}

fn warnings(response: &Value) -> String {
    let line = |warning: &Value| match warning["what"].as_str() {
        Some(message) => format!("warning: {}\n", show::clean(message)),
        None => format!("warning: {}\n", show::clean(&show::text(warning))),
    };
    response["warnings"].as_array().into_iter().flatten().map(line).collect()
}
