//! The commands that call the admin API of a running server.
//!
//! Each command sends one or a few requests. It prints tables and sentences for people; with `--json` it writes the API's own
//! documents unchanged, and lists with one item per line.

pub(super) mod audit;
pub(super) mod block;
mod bulk;
mod client;
mod connect;
pub(super) mod control;
pub(super) mod counters;
pub(super) mod emergency;
pub(super) mod events;
mod expiry;
mod in_force;
pub(super) mod leases;
mod path;
pub(super) mod plan;
pub(super) mod plans;
pub(super) mod quota;
pub(super) mod regions;
pub(super) mod resource;
pub(super) mod rule;
mod rule_file;
mod server;
mod show;
pub(super) mod signals;
pub(super) mod switch;
pub(super) mod tier;
pub(super) mod token;
#[cfg(feature = "top")]
pub(super) mod top;
pub(super) mod usage;
pub(super) mod why;

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use self::client::AdminClient;
pub use self::server::ENVIRONMENT_VARIABLES;
use self::server::ServerArgs;
use super::{EXIT_FAILURE, EXIT_USAGE, print_error};

/// The error of a command.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The server returned an error.
    Rejected(ErrorResponse),
    /// The arguments are invalid.
    Usage(String),
    /// The server can't be reached.
    Unavailable(String),
    /// The command failed on this machine.
    Failed(String),
    /// Standard output is closed.
    OutputClosed,
}

/// An error response.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    status: u16,
    /// The problem document; `null` if there is none.
    problem: Value,
    /// The body, if it is not a problem document.
    text: String,
}

pub(crate) type CommandResult = Result<(), CommandError>;

/// The option `--domain`.
#[derive(Debug, Args)]
struct DomainArgs {
    /// The domain; may be omitted if only one has callers
    #[arg(long, value_name = "NAME", global = true)]
    domain: Option<String>,
}

/// Runs a command and reports its error.
fn run(server: &ServerArgs, command: impl FnOnce(&AdminClient) -> CommandResult) -> ExitCode {
    let result = AdminClient::new(server).and_then(|client| command(&client));
    let (code, message) = match result {
        Ok(()) | Err(CommandError::OutputClosed) => return ExitCode::SUCCESS,
        // Scripts get the problem document unchanged.
        Err(CommandError::Rejected(ErrorResponse { problem, .. })) if server.json && problem.is_object() => {
            (EXIT_FAILURE, problem.to_string())
        }
        Err(CommandError::Rejected(response)) => (EXIT_FAILURE, format!("error: {response}")),
        Err(CommandError::Failed(message)) => (EXIT_FAILURE, format!("error: {message}")),
        Err(CommandError::Usage(message) | CommandError::Unavailable(message)) => {
            (EXIT_USAGE, format!("error: {message}"))
        }
    };
    print_error(message);
    ExitCode::from(code)
}

/// Writes to standard output.
fn write_stdout(text: impl AsRef<[u8]>) -> CommandResult {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CommandError::OutputClosed,
        _ => CommandError::Failed(format!("standard output can't be written: {error}")),
    })
}

impl ErrorResponse {
    fn code(&self) -> &str {
        self.problem["code"].as_str().unwrap_or_default()
    }

    /// A remedy that the problem document does not have.
    fn remedy(&self) -> Option<&'static str> {
        match (self.status, self.code()) {
            (401, _) => {
                Some("set a token with --token-file FILE or TOLLGATE_TOKEN; `tollgate token create` creates one")
            }
            (403, "forbidden") => Some("use a token with this scope"),
            (409, "needs_confirmation") => Some(
                "`tollgate plans show ID` shows whom it would refuse; if that is intended, repeat the command with --confirm ID",
            ),
            (409, "needs_approval") => {
                Some("after `tollgate plans approve ID` by somebody else, repeat the command with --confirm ID")
            }
            (404, "") => Some("is --server the admin listener of a recent Tollgate?"),
            (412, _) => Some("it was changed meanwhile: look at the current state and try again"),
            (503, "decision_log_off") => Some("start the server with --decision-log auto"),
            (503, "control_off") => Some("start the server with --data DIR or --control URL"),
            (503, _) => Some("nothing was changed; try again later"),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = show::clean(self.problem["detail"].as_str().unwrap_or_default());
        match &*detail {
            "" if self.text.is_empty() => write!(f, "the server answered {}", self.status)?,
            "" => write!(f, "the server answered {}: {}", self.status, show::clean(self.text.trim()))?,
            detail => f.write_str(detail)?,
        }
        for fault in self.problem["faults"].as_array().into_iter().flatten() {
            let (at, what) = (fault["at"].as_str().unwrap_or_default(), fault["what"].as_str().unwrap_or_default());
            let line = match at {
                "" => what.to_owned(),
                at => format!("{at}: {what}"),
            };
            // A single fault is the detail itself.
            if show::clean(&line) != detail {
                write!(f, "\n  {}", show::clean(&line))?;
            }
        }
        match self.remedy() {
            Some(remedy) => write!(f, "\n{remedy}"),
            None => Ok(()),
        }
    }
}
