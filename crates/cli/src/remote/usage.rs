//! `tollgate usage`: how much of its limits a caller has used.

use std::process::ExitCode;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::{CommandResult, DomainArgs};

/// Usage of a caller.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tollgate usage ada")]
pub(crate) struct Usage {
    /// The caller: the value of the domain's `entity`, such as an API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    caller: String,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: Columns = &[
    ("WHAT", |item| show::text(&item["what"])),
    ("USED", |item| show::text(&item["used"])),
    ("OF", |item| show::text(&item["limit"])),
    ("LEFT", |item| show::text(&item["remaining"])),
    ("RULE", |item| show::text(&item["rule"])),
    ("BY", |item| show::text(&item["resolved_by"])),
    ("COUNTED IN", show::counted_in),
];

impl Usage {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| self.print(client))
    }

    fn print(&self, client: &AdminClient) -> CommandResult {
        let path = ApiPath::new(&["admin", "v1", "usage", &self.caller]).with("domain", self.domain.domain.as_deref());
        show::print(client, &client.send(ApiRequest::get(path))?, to_text)
    }
}

fn to_text(response: &Value) -> String {
    let rows: Vec<Value> = response["usage"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(what, used)| {
            let mut row = used.clone();
            row["what"] = json!(what);
            row
        })
        .collect();
    let mut text = match rows.is_empty() {
        true => {
            "no rule counts this caller by its name alone; use `tollgate counters show` with --attribute\n".to_owned()
        }
        false => show::TextTable::new(COLUMNS).lines(&rows),
    };
    let window = &response["current_window"];
    if window.is_object() {
        let (start, end) = (show::time(&window["start"]), show::time(&window["end"]));
        text.push_str(&format!("\nThe window of the default limit is {start} to {end}.\n"));
    }
    text
}
