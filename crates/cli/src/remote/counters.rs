//! `tollgate counters`: the counters of one caller.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::resource::{Action, RequestBody};
use super::show::{self, Columns};
use super::{CommandError, CommandResult};

#[derive(Debug, Subcommand)]
pub(crate) enum CountersAction {
    /// Show a caller's counters
    #[command(after_help = "Example:\n  tollgate counters show ada --attribute 'endpoint=POST /orders'")]
    Show(CounterSelection),
    /// Reset counters
    #[command(after_help = "Example:\n  tollgate counters reset ada --rule per-key --reason 'ticket 4711'")]
    Reset(CounterChange),
    /// Return units
    #[command(after_help = "Example:\n  tollgate counters credit ada --units 100 --reason 'our fault'")]
    Credit(UnitsChange),
    /// Take units
    #[command(after_help = "Example:\n  tollgate counters debit ada --rule per-key --units 100")]
    Debit(UnitsChange),
}

#[derive(Debug, Args)]
pub(crate) struct CounterSelection {
    /// The caller: the value of the domain's `entity`, such as an API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    caller: String,
    /// Only of this rule; of all rules by default
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Another value of a key with several: endpoint='POST /orders'
    #[arg(long, value_name = "NAME=VALUE")]
    attribute: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CounterChange {
    #[command(flatten)]
    selection: CounterSelection,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsChange {
    #[command(flatten)]
    change: CounterChange,
    /// The number of units
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
    ("COUNTED IN", show::counted_in),
];

const CHANGE_COLUMNS: Columns = &[
    ("RULE", |item| show::text(&item["rule"])),
    ("KEY", |item| show::text(&item["key"])),
    ("MOVED", |item| show::text(&item["moved"])),
    ("USED", |item| show::text(&item["used"])),
    ("LEFT", |item| show::text(&item["remaining"])),
];

/// Query parameters that can't be names of attributes.
const RESERVED_PARAMETERS: [&str; 2] = ["domain", "rule"];

impl Action for CountersAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        match self {
            CountersAction::Show(selection) => {
                let mut path = selection.path(domain).with("rule", selection.rule.as_deref());
                for (name, value) in selection.attributes()? {
                    if RESERVED_PARAMETERS.contains(&name) {
                        let message = format!(
                            "--attribute: the attribute {name} can't be selected; use --json of `tollgate usage`"
                        );
                        return Err(CommandError::Usage(message));
                    }
                    path = path.with(name, Some(value));
                }
                show::print(client, &client.send(ApiRequest::get(path))?, |response| to_text(response, COLUMNS))
            }
            CountersAction::Reset(change) => change.send(client, domain, "reset", None),
            CountersAction::Credit(credit) => credit.change.send(client, domain, "credit", Some(credit.units)),
            CountersAction::Debit(debit) => debit.change.send(client, domain, "debit", Some(debit.units)),
        }
    }
}

impl CounterSelection {
    fn path(&self, domain: Option<&str>) -> ApiPath {
        ApiPath::new(&["admin", "v1", "counters", &self.caller]).with("domain", domain)
    }

    fn attributes(&self) -> Result<Vec<(&str, &str)>, CommandError> {
        let pair = |text: &'_ String| match text.split_once('=') {
            None | Some(("", _)) => {
                Err(CommandError::Usage(format!("--attribute: {} is not NAME=VALUE", show::clean(text))))
            }
            Some(_) => Ok(()),
        };
        self.attribute.iter().try_for_each(pair)?;
        Ok(self.attribute.iter().filter_map(|text| text.split_once('=')).collect())
    }
}

impl CounterChange {
    fn send(&self, client: &AdminClient, domain: Option<&str>, action: &str, units: Option<u64>) -> CommandResult {
        let selection = &self.selection;
        let attributes: Map<String, Value> =
            selection.attributes()?.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let body = RequestBody::new()
            .with("action", Some(action))
            .with("units", units)
            .with("rule", selection.rule.as_deref())
            .with("reason", self.reason.as_deref())
            .with("attributes", Some(Value::Object(attributes)));
        let response = client.send(ApiRequest::post(selection.path(domain)).json(body))?;
        show::print(client, &response, |response| to_text(response, CHANGE_COLUMNS))
    }
}

fn to_text(response: &Value, columns: Columns) -> String {
    let counters = response["counters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = match counters.is_empty() {
        true => "no counters\n".to_owned(),
        false => show::TextTable::new(columns).lines(counters),
    };
    for counter in counters {
        for at in counter["regions"].as_array().into_iter().flatten() {
            let [rule, region] = [&counter["rule"], &at["region"]].map(|text| show::clean(&show::text(text)));
            let state = match (at["used"].as_u64(), at["moved"].as_u64()) {
                (None, _) => "did not answer".to_owned(),
                (Some(used), None) => format!("{used} used"),
                (Some(used), Some(moved)) => format!("{moved} moved, {used} used"),
            };
            text.push_str(&format!("{rule} in {region}: {state}\n"));
        }
    }
    for omitted in response["left_out"].as_array().into_iter().flatten() {
        let (rule, why) = (show::text(&omitted["rule"]), show::text(&omitted["why"]));
        text.push_str(&format!("left out: {}: {}\n", show::clean(&rule), show::clean(&why)));
    }
    text
}
