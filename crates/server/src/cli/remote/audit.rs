//! `tollgate audit`: who did what, when, from where.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::{Done, Failure, Refusal, complain, say};

/// The audit log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate audit --last 20\n  \
    tollgate audit --since 2026-11-16T00:00:00Z --kind quota --name abc123\n  \
    tollgate audit --follow >> audit.jsonl")]
pub(in crate::cli) struct Audit {
    /// The newest so many; 50 if nothing else says which
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), conflicts_with_all = ["since", "follow", "after"])]
    last: Option<u64>,
    /// From this moment on: 2026-11-16T00:00:00Z
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Before this moment
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Past this entry
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// By whom: 'token billing'
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Of this kind: quota, rule, switch, emergency, block, token, counter
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Go on with what happens, as JSON lines: from now on, unless --since or --after says otherwise
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// How many entries are told if nobody says how many.
const USUAL: u64 = 50;
/// How long a server that has gone is waited for before it is asked again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| match self.follow {
            true => self.go_on(remote),
            false => self.look(remote),
        })
    }

    /// The log, and which part of it is wanted.
    fn path(&self) -> Path {
        let mut path = Path::of(&["admin", "v1", "audit"]);
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

    fn look(&self, remote: &Remote) -> Done {
        const NONE: &str = "nothing of this kind has happened";
        if self.since.is_some() || self.after.is_some() {
            let after = self.after.map(|after| after.to_string());
            return show::list_after(remote, &self.path(), after, None, COLUMNS, NONE);
        }
        let path = self.path().with("newest", Some("true"));
        let answer = remote.ask(Call::get(path.with("limit", Some(self.last.unwrap_or(USUAL).to_string()))))?;
        // As it happened, whichever way it was asked for.
        if remote.json {
            let items = show::as_they_are(&answer)?;
            return say(items.iter().rev().map(|item| format!("{}\n", item.get())).collect::<String>());
        }
        let items: Vec<Value> = show::items(&answer.value()?)?.iter().rev().cloned().collect();
        match items.is_empty() {
            true => say(format!("{NONE}\n")),
            false => say(show::Table::new(COLUMNS).lines(&items)),
        }
    }

    /// Tells what happens for as long as somebody listens. A server that goes away is asked again, for what came after the last
    /// entry that was told.
    fn go_on(&self, remote: &Remote) -> Done {
        // Asked in any case: a server that is away from the beginning is not waited for.
        let newest = latest(remote)?;
        let mut last = match (self.after, &self.since) {
            (Some(after), _) => after,
            (None, Some(_)) => 0,
            (None, None) => newest,
        };
        let (mut pause, mut is_gone) = (FIRST_PAUSE, false);
        loop {
            let path = self.path().with("after", Some(last.to_string())).with("follow", Some("true"));
            let followed = remote.each_line(Call::get(path), |line| {
                let entry: Value = serde_json::from_slice(line).unwrap_or_default();
                last = entry["id"].as_u64().unwrap_or(last);
                (pause, is_gone) = (FIRST_PAUSE, false);
                say([line, b"\n"].concat())
            });
            match followed {
                // Servers end it after a while, so that connections do not grow old.
                Ok(()) | Err(Failure::Away(_) | Failure::Refused(Refusal { status: 500.., .. })) => {}
                Err(other) => return Err(other),
            }
            if !std::mem::replace(&mut is_gone, true) {
                complain(format_args!("the log ended at entry {last}; asking again"));
            }
            remote.pause(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The id of the last entry.
fn latest(remote: &Remote) -> Result<u64, Failure> {
    let path = Path::of(&["admin", "v1", "audit"]).with("newest", Some("true")).with("limit", Some("1"));
    let answer = remote.ask(Call::get(path))?.value()?;
    Ok(show::items(&answer)?.first().and_then(|entry| entry["id"].as_u64()).unwrap_or(0))
}
