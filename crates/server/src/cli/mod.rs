//! The command line. Each command is a file: its arguments, what it does, and the exit code that says how it went.

mod demo;
mod explain;
mod lint;
mod remote;
mod replay;
mod serve;

pub(crate) use remote::VARIABLES;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tollgate::{LoadOptions, Problem, RequestError, Ruleset};

use crate::config;

/// Tollgate decides, for every API request, whether it may pass.
///
/// Without a command it serves: `tollgate` is `tollgate serve`, and takes the same flags.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
struct Cli {}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check rule files: every error and warning, with the line and what to write instead
    Lint(lint::Lint),
    /// Say what every rule makes of a request: matched, or missed and why
    Explain(explain::Explain),
    /// Decide recorded requests, one JSON object a line on standard input, on their own time
    Replay(replay::Replay),
    /// What callers have: tiers and limits of their own, one by one or many at once
    Quota(remote::quota::Quota),
    /// Tiers: which there are, and who is of which
    Tier(remote::tier::Tier),
    /// How much of its limits a caller has used
    Usage(remote::usage::Usage),
    /// One caller's counters: look, reset, credit, debit
    Counters(remote::counters::Counters),
    /// Rules by API, above the rule files: versions, states, what differs
    Rule(remote::rule::Rule),
    /// Switch a rule, a domain or everything to off, shadow, soft or enforce
    Switch(remote::switch::Switch),
    /// Block callers and address ranges
    Block(remote::block::Block),
    /// Limits that go before all others, for an hour or so
    Emergency(remote::emergency::Emergency),
    /// Who did what, when, from where
    Audit(remote::audit::Audit),
    /// Why a caller was limited: the refusal nearest a moment, in a sentence
    Why(remote::why::Why),
    /// Who may ask the admin API, and what for
    Token(remote::token::Token),
    /// What a server does, live: decisions, rules, who asks most
    Top(remote::top::Top),
    /// Traffic for the demo: many callers, a noisy one, and a bad deploy
    #[command(hide = true)]
    DemoLoad(demo::DemoLoad),
}

/// Which rules.
#[derive(Debug, Args)]
struct RulesArgs {
    /// A rule file, or a directory of them
    #[arg(long, value_name = "PATH")]
    rules: PathBuf,
    #[command(flatten)]
    loading: LoadingArgs,
}

#[derive(Debug, Args)]
struct LoadingArgs {
    /// Let several files add to one domain
    #[arg(long)]
    merge_domains: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate serve --rules rules/
  tollgate lint rules/
  tollgate explain --rules rules/ api_key=k1 endpoint='GET /orders'
  tollgate replay --rules rules/ < requests.jsonl > decisions.jsonl
  tollgate quota set abc123 --tier pro --override 'endpoint:POST /orders=500/minute'
  tollgate usage abc123
  tollgate top
  tollgate why abc123 --at 14:32:17

Exit codes: 0 when all is well; 1 when rules, requests or input are not, or a server said no; 2 for a command that can't
be understood, or a server that can't be reached.";

/// What was asked for is not well: rules with errors, lines that can't be read.
const FAILURE: u8 = 1;
/// The command can't be understood.
const USAGE: u8 = 2;

/// Runs the command that the process was started with.
pub(crate) fn run() -> ExitCode {
    match parsed() {
        Ok(Asked::Serve(matches)) => serve::run(&matches),
        Ok(Asked::Other(command)) => command.run(),
        Err(error) => {
            // Help that nobody reads is no failure.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
        }
    }
}

/// What the process was started for.
enum Asked {
    /// With its flags, which come from the table of settings.
    Serve(ArgMatches),
    Other(Box<Command>),
}

fn parsed() -> Result<Asked, clap::Error> {
    let matches = command().try_get_matches()?;
    match matches.subcommand() {
        None => Ok(Asked::Serve(matches)),
        Some((serve::NAME, flags)) => Ok(Asked::Serve(flags.clone())),
        Some(_) => Command::from_arg_matches(&matches).map(|command| Asked::Other(Box::new(command))),
    }
}

/// All commands. Without one the flags of `serve` are taken too, and shown only there.
fn command() -> clap::Command {
    let alone = config::command(Cli::command()).mut_args(|flag| flag.hide(true)).args_conflicts_with_subcommands(true);
    Command::augment_subcommands(alone.subcommand(serve::command()))
}

impl Command {
    fn run(&self) -> ExitCode {
        match self {
            Command::Lint(lint) => lint.run(),
            Command::Explain(explain) => explain.run(),
            Command::Replay(replay) => replay.run(),
            Command::Quota(quota) => quota.run(),
            Command::Tier(tier) => tier.run(),
            Command::Usage(usage) => usage.run(),
            Command::Counters(counters) => counters.run(),
            Command::Rule(rule) => rule.run(),
            Command::Switch(switch) => switch.run(),
            Command::Block(block) => block.run(),
            Command::Emergency(emergency) => emergency.run(),
            Command::Audit(audit) => audit.run(),
            Command::Why(why) => why.run(),
            Command::Token(token) => token.run(),
            Command::Top(top) => top.run(),
            Command::DemoLoad(load) => load.run(),
        }
    }
}

impl RulesArgs {
    /// The rules; where they have errors, all problems have been told.
    fn load(&self) -> Result<Ruleset, ExitCode> {
        let loaded = Ruleset::load(&[&self.rules], &self.loading.options(), 1);
        loaded.map(|(ruleset, _)| ruleset).map_err(|problems| {
            let text: String = problems.iter().map(|problem: &Problem| format!("{problem}\n")).collect();
            complain(text.trim_end());
            ExitCode::from(FAILURE)
        })
    }
}

impl LoadingArgs {
    fn options(&self) -> LoadOptions {
        LoadOptions { merge_domains: self.merge_domains, ..LoadOptions::default() }
    }
}

/// Writes to standard output and ends with this code. A reader that has gone away has read enough.
fn finish(text: &str, code: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(format_args!("standard output can't be written: {error}"));
            ExitCode::from(FAILURE)
        }
        _ => ExitCode::from(code),
    }
}

/// Writes a line to standard error. If nobody listens there is nobody to tell.
pub(crate) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Why a request can't be decided, with the domains that it could have named.
fn request_error(error: &RequestError, domain: Option<&str>, rules: &Ruleset) -> String {
    const SHOWN: usize = 20;
    let names = || {
        let domains = rules.domains();
        let shown = domains
            .iter()
            .take(SHOWN)
            .map(|domain| tollgate_rules::quoted(domain.name()))
            .collect::<Vec<_>>()
            .join(", ");
        match domains.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    match (error, domain) {
        (RequestError::UnknownDomain, Some(domain)) => {
            format!("there is no domain {}; the rules have {}", tollgate_rules::quoted(domain), names())
        }
        (RequestError::NoDomain, _) => format!("{error}: {}", names()),
        _ => error.to_string(),
    }
}
