//! `tollgate audit`: the audit log.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::{CommandError, CommandResult, ErrorResponse, print_error, write_stdout};

/// The audit log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate audit --last 20\n  \
    tollgate audit --since 2026-11-16T00:00:00Z --kind quota --name ada\n  \
    tollgate audit --follow >> audit.jsonl")]
pub(crate) struct Audit {
    /// The newest N entries; 50 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), conflicts_with_all = ["since", "follow", "after"])]
    last: Option<u64>,
    /// Entries since this time: 2026-11-16T00:00:00Z
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Entries before this time
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Entries after this one
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Only by this author: 'token billing'
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Only of this kind: quota, rule, switch, emergency, block, plan, token, counter, access, control
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Follow new entries, as JSON lines; from now on, unless --since or --after is set
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The default of `--last`.
const DEFAULT_ENTRIES: u64 = 50;
/// The delay before a reconnect: the first, and the longest.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(250);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);

const COLUMNS: Columns = &[
    ("ID", |item| show::text(&item["id"])),
    ("AT", |item| show::time(&item["at"])),
    ("BY", |item| show::text(&item["by"])),
    ("FROM", |item| show::text(&item["from"])),
    ("ACTION", |item| show::text(&item["action"])),
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("NAME", |item| show::text(&item["name"])),
    ("REASON", |item| show::text(&item["reason"])),
];

impl Audit {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| match self.follow {
            true => self.follow(client),
            false => self.list(client),
        })
    }

    /// The path with the filters.
    fn path(&self) -> ApiPath {
        let mut path = ApiPath::new(&["admin", "v1", "audit"]);
        for (name, value) in [
            ("by", &self.by),
            ("kind", &self.kind),
            ("name", &self.name),
            ("domain", &self.domain),
            ("since", &self.since),
            ("until", &self.until),
        ] {
            path = path.with(name, value.as_deref());
        }
        path
    }

    fn list(&self, client: &AdminClient) -> CommandResult {
        const EMPTY: &str = "no entries";
        if self.since.is_some() || self.after.is_some() {
            let after = self.after.map(|after| after.to_string());
            return show::list_after(client, &self.path(), after, None, COLUMNS, EMPTY);
        }
        let path = self.path().with("newest", Some("true"));
        let path = path.with("limit", Some(self.last.unwrap_or(DEFAULT_ENTRIES).to_string()));
        let response = client.send(ApiRequest::get(path))?;
        // The oldest first.
        if client.json {
            let items = show::raw_items(&response)?;
            return write_stdout(items.iter().rev().map(|item| format!("{}\n", item.get())).collect::<String>());
        }
        let items: Vec<Value> = show::items(&response.value()?)?.iter().rev().cloned().collect();
        match items.is_empty() {
            true => write_stdout(format!("{EMPTY}\n")),
            false => write_stdout(show::TextTable::new(COLUMNS).lines(&items)),
        }
    }

    /// Follows the log. After a disconnect it continues with the entries after the last one.
    fn follow(&self, client: &AdminClient) -> CommandResult {
        // In any case, so that a server that can't be reached at the start is an error.
        let newest = latest(client)?;
        let mut last = match (self.after, &self.since) {
            (Some(after), _) => after,
            (None, Some(_)) => 0,
            (None, None) => newest,
        };
        let (mut delay, mut is_lost) = (MIN_RECONNECT_DELAY, false);
        loop {
            let path = self.path().with("after", Some(last.to_string())).with("follow", Some("true"));
            let followed = client.each_line(ApiRequest::get(path), |line| {
                let entry: Value = serde_json::from_slice(line).unwrap_or_default();
                last = entry["id"].as_u64().unwrap_or(last);
                (delay, is_lost) = (MIN_RECONNECT_DELAY, false);
                write_stdout([line, b"\n"].concat())
            });
            match followed {
                // Servers end the stream after a while, to limit the age of connections.
                Ok(())
                | Err(CommandError::Unavailable(_) | CommandError::Rejected(ErrorResponse { status: 500.., .. })) => {}
                Err(other) => return Err(other),
            }
            if !std::mem::replace(&mut is_lost, true) {
                print_error(format_args!("the log ended at entry {last}; reconnecting"));
            }
            client.pause(delay);
            delay = (delay * 2).min(MAX_RECONNECT_DELAY);
        }
    }
}

/// The id of the last entry.
fn latest(client: &AdminClient) -> Result<u64, CommandError> {
    let path = ApiPath::new(&["admin", "v1", "audit"]).with("newest", Some("true")).with("limit", Some("1"));
    let response = client.send(ApiRequest::get(path))?.value()?;
    Ok(show::items(&response)?.first().and_then(|entry| entry["id"].as_u64()).unwrap_or(0))
}
