//! The commands that ask a running server: what its admin API can do, for people and for scripts.
//!
//! Each command makes one or a few calls. People get tables and sentences; with `--json` the API's own documents are written as
//! they came, those of lists one a line.

pub(super) mod audit;
pub(super) mod block;
mod bulk;
mod client;
mod connect;
pub(super) mod counters;
pub(super) mod emergency;
mod path;
pub(super) mod quota;
pub(super) mod rule;
mod rule_file;
mod server;
mod show;
pub(super) mod switch;
pub(super) mod tier;
pub(super) mod token;
pub(super) mod top;
mod until;
pub(super) mod usage;
pub(super) mod why;

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use self::client::Remote;
use self::server::ServerArgs;
pub(crate) use self::server::VARIABLES;
use super::{FAILURE, USAGE, complain};

/// Why a command was not done.
#[derive(Debug)]
enum Failure {
    /// The server said no.
    Refused(Refusal),
    /// What was asked makes no sense.
    Usage(String),
    /// The server can't be asked.
    Away(String),
    /// What was asked was not done, for a reason of ours.
    Undone(String),
    /// Nobody reads the output any more.
    Enough,
}

/// What a server said that said no.
#[derive(Debug)]
struct Refusal {
    status: u16,
    /// The problem as it came; `null` if it was none.
    problem: Value,
    /// What came in place of a problem.
    text: String,
}

type Done = Result<(), Failure>;

/// Whose.
#[derive(Debug, Args)]
struct DomainArgs {
    /// The domain; may be left out where only one has callers
    #[arg(long, value_name = "NAME", global = true)]
    domain: Option<String>,
}

/// Does what a command is for, and says how it went.
fn run(server: &ServerArgs, what: impl FnOnce(&Remote) -> Done) -> ExitCode {
    let done = Remote::new(server).and_then(|remote| what(&remote));
    let (code, told) = match done {
        Ok(()) | Err(Failure::Enough) => return ExitCode::SUCCESS,
        // Scripts read problems as they came.
        Err(Failure::Refused(Refusal { problem, .. })) if server.json && problem.is_object() => {
            (FAILURE, problem.to_string())
        }
        Err(Failure::Refused(refusal)) => (FAILURE, format!("error: {refusal}")),
        Err(Failure::Undone(what)) => (FAILURE, format!("error: {what}")),
        Err(Failure::Usage(what) | Failure::Away(what)) => (USAGE, format!("error: {what}")),
    };
    complain(told);
    ExitCode::from(code)
}

/// Writes to standard output.
fn say(text: impl AsRef<[u8]>) -> Done {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Enough,
        _ => Failure::Undone(format!("standard output can't be written: {error}")),
    })
}

impl Refusal {
    fn code(&self) -> &str {
        self.problem["code"].as_str().unwrap_or_default()
    }

    /// What to do about it, where that is not in the problem itself.
    fn remedy(&self) -> Option<&'static str> {
        match (self.status, self.code()) {
            (401, _) => {
                Some("name a token with --token-file FILE or TOLLGATE_TOKEN; `tollgate token create` makes one")
            }
            (403, "forbidden") => Some("use a token that has this scope"),
            (404, "") => Some("is --server the admin listener of a Tollgate that is new enough?"),
            (412, _) => Some("somebody else was faster: look at what is there now, and send it again"),
            (503, "decision_log_off") => Some("start the server with --decision-log auto"),
            (503, "control_off") => Some("start the server with --data DIR or --control URL"),
            (503, _) => Some("nothing was changed; try again when it is back"),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = show::clean(self.problem["detail"].as_str().unwrap_or_default());
        match &*detail {
            "" if self.text.is_empty() => write!(f, "the server answered {}", self.status)?,
            "" => write!(f, "the server answered {}: {}", self.status, show::clean(self.text.trim()))?,
            detail => f.write_str(detail)?,
        }
        for fault in self.problem["faults"].as_array().into_iter().flatten() {
            let (at, what) = (fault["at"].as_str().unwrap_or_default(), fault["what"].as_str().unwrap_or_default());
            let told = match at {
                "" => what.to_owned(),
                at => format!("{at}: {what}"),
            };
            // Where there is one fault alone, the detail is that fault.
            if show::clean(&told) != detail {
                write!(f, "\n  {}", show::clean(&told))?;
            }
        }
        match self.remedy() {
            Some(remedy) => write!(f, "\n{remedy}"),
            None => Ok(()),
        }
    }
}
