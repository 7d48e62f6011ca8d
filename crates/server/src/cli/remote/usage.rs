//! `tollgate usage`: how much of its limits a caller has used.

use std::process::ExitCode;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::{DomainArgs, Done};

/// Usage of a caller.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tollgate usage abc123")]
pub(in crate::cli) struct Usage {
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
    ("COUNTED IN", |item| show::text(&item["source"])),
];

impl Usage {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let path = Path::of(&["admin", "v1", "usage", &self.caller]).with("domain", self.domain.domain.as_deref());
        show::tell(remote, &remote.ask(Call::get(path))?, words)
    }
}

fn words(answer: &Value) -> String {
    let rows: Vec<Value> = answer["usage"]
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
        true => "no rule counts this caller by its name alone; `tollgate counters show` takes --attribute\n".to_owned(),
        false => show::Table::new(COLUMNS).lines(&rows),
    };
    let window = &answer["current_window"];
    if window.is_object() {
        let (start, end) = (show::time(&window["start"]), show::time(&window["end"]));
        text.push_str(&format!("\nThe window of default is {start} to {end}.\n"));
    }
    text
}
