//! `tollgate events`: what happened, and the sinks that events are sent to.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};
use super::{CommandError, CommandResult, ErrorResponse, print_error, write_stdout};

/// Events of a server, and changes by operators
///
/// Starts, reloads and rejections of rules, levels of the counter store and signals are those of the server that the command calls.
/// Changes by operators are shown to tokens with the scope `audit`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        tollgate events --last 20\n  \
        tollgate events --follow --json\n  \
        tollgate events sinks\n  \
        tollgate events test pager"
)]
pub(crate) struct Events {
    #[command(subcommand)]
    action: Option<EventAction>,
    /// The number of events, the newest ones
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    last: u64,
    /// Events since this time; a day ago by default
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Print new events as they come
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum EventAction {
    /// The sinks that events are sent to, and how they fare
    #[command(after_help = "Example:\n  tollgate events sinks --json")]
    Sinks,
    /// Send a test event to a sink, at once
    #[command(after_help = "Example:\n  tollgate events test pager")]
    Test {
        /// The name of the sink
        #[arg(value_name = "NAME")]
        name: String,
    },
}

const COLUMNS: Columns = &[
    ("AT", |item| show::time(&item["at"])),
    ("KIND", |item| show::text(&item["kind"])),
    ("WHAT", what),
    ("BY", |item| show::text(&item["by"])),
    ("REASON", |item| show::text(&item["reason"])),
];

const SINK_COLUMNS: Columns = &[
    ("SINK", |item| show::text(&item["name"])),
    ("HOST", |item| show::text(&item["host"])),
    ("STATE", |item| show::text(&item["state"])),
    ("WAITING", |item| show::text(&item["waiting"])),
    ("DELIVERED", |item| show::text(&item["delivered"])),
    ("RETRIED", |item| show::text(&item["retried"])),
    ("DROPPED", |item| show::text(&item["dropped"])),
    ("LAST", |item| show::time(&item["delivered_at"])),
    ("ERROR", |item| show::text(&item["error"])),
];

/// How often a server is called for new events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The most events of one response.
const MAX_EVENTS: u64 = 1_000;

impl Events {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| match &self.action {
            None if self.follow => self.follow(client),
            None => self.list(client),
            Some(EventAction::Sinks) => show::print(client, &client.send(ApiRequest::get(events(&["sinks"])))?, sinks),
            Some(EventAction::Test { name }) => test(client, name),
        })
    }

    fn list(&self, client: &AdminClient) -> CommandResult {
        let items = newest(client, self.since.as_deref(), self.last)?;
        if items.is_empty() && !client.json {
            return write_stdout("no events\n");
        }
        print(client, &mut TextTable::new(COLUMNS), &items)
    }

    /// Prints the last events, and those that come.
    fn follow(&self, client: &AdminClient) -> CommandResult {
        let mut table = TextTable::new(COLUMNS);
        let mut followed = Followed::default();
        // A server that can't be reached at the start is an error.
        let first = newest(client, self.since.as_deref(), self.last)?;
        print(client, &mut table, &followed.select(first))?;
        let mut is_lost = false;
        loop {
            client.pause(POLL_INTERVAL);
            match newest(client, followed.at.as_deref(), MAX_EVENTS) {
                Ok(items) => {
                    is_lost = false;
                    print(client, &mut table, &followed.select(items))?;
                }
                Err(CommandError::Unavailable(_) | CommandError::Rejected(ErrorResponse { status: 500.., .. }))
                    if !std::mem::replace(&mut is_lost, true) =>
                {
                    print_error(format_args!("the server does not answer; trying again"));
                }
                Err(CommandError::Unavailable(_) | CommandError::Rejected(ErrorResponse { status: 500.., .. })) => {}
                Err(other) => return Err(other),
            }
        }
    }
}

/// What was printed.
#[derive(Debug, Default)]
struct Followed {
    /// The time of the newest events.
    at: Option<String>,
    /// Those of that time.
    printed: HashSet<String>,
}

impl Followed {
    /// The events that were not printed yet.
    fn select(&mut self, items: Vec<Value>) -> Vec<Value> {
        let new: Vec<Value> = items.into_iter().filter(|item| !self.printed.contains(&item.to_string())).collect();
        for item in &new {
            let at = item["at"].as_str();
            if self.at.as_deref() != at {
                self.at = at.map(str::to_owned);
                self.printed.clear();
            }
            self.printed.insert(item.to_string());
        }
        new
    }
}

fn events(parts: &[&str]) -> ApiPath {
    ApiPath::new(&[&["admin", "v1", "events"], parts].concat())
}

/// The newest events, oldest first.
fn newest(client: &AdminClient, since: Option<&str>, count: u64) -> Result<Vec<Value>, CommandError> {
    let path = events(&[]).with("since", since).with("limit", Some(count.to_string()));
    let response = client.send(ApiRequest::get(path))?.value()?;
    Ok(show::items(&response)?.iter().rev().cloned().collect())
}

fn print(client: &AdminClient, table: &mut TextTable, items: &[Value]) -> CommandResult {
    match client.json {
        true => write_stdout(items.iter().map(|item| format!("{item}\n")).collect::<String>()),
        false => write_stdout(table.lines(items)),
    }
}

/// What happened: a sentence, or the action and the record.
fn what(item: &Value) -> String {
    let text = show::text(&item["text"]);
    match (item["domain"].as_str(), item["name"].as_str()) {
        (None, None) => text,
        (domain, name) => {
            let record: Vec<&str> = [domain, name].into_iter().flatten().collect();
            format!("{text} {}", record.join("/"))
        }
    }
}

/// The sinks, for people.
fn sinks(answer: &Value) -> String {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match items.is_empty() {
        true => "there are no sinks: start the server with --events FILE\n".to_owned(),
        false => TextTable::new(SINK_COLUMNS).lines(items),
    }
}

fn test(client: &AdminClient, name: &str) -> CommandResult {
    let response = client.send(ApiRequest::post(events(&["sinks", name, "test"])))?;
    let answer = response.value()?;
    if answer["result"] == "taken" {
        return show::print(client, &response, |_| format!("the receiver of {name} took the event\n"));
    }
    if client.json {
        show::print_json(&response)?;
    }
    Err(CommandError::Failed(format!(
        "the receiver of {name} did not take the event: {}",
        show::text(&answer["error"])
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_printed_once() {
        let event = |at: &str, text: &str| json!({"at": at, "kind": "start", "text": text});
        let mut followed = Followed::default();
        let first = vec![event("1", "a"), event("2", "b")];
        assert_eq!(followed.select(first.clone()), first);
        assert_eq!(followed.at.as_deref(), Some("2"));
        assert_eq!(followed.select(vec![event("2", "b"), event("2", "c")]), [event("2", "c")]);
        assert_eq!(followed.select(vec![event("2", "b"), event("2", "c"), event("3", "d")]), [event("3", "d")]);
        assert_eq!(followed.select(vec![event("3", "d")]), [] as [Value; 0]);
    }

    #[test]
    fn tables_say_what_happened_and_how_sinks_fare() {
        assert_eq!(what(&json!({"text": "rule.put", "domain": "shop", "name": "per-key"})), "rule.put shop/per-key");
        assert_eq!(what(&json!({"text": "started", "domain": null, "name": null})), "started");
        assert!(sinks(&json!({"items": []})).starts_with("there are no sinks"));
        let text =
            sinks(&json!({"items": [{"name": "pager", "state": "failing", "waiting": 3, "error": "no response"}]}));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("SINK") && lines[1].starts_with("pager") && lines[1].ends_with("no response"),
            "{text}"
        );
    }
}
