//! The command line of `tollgate`. Each command has a module with its arguments.
//!
//! `lint`, `explain` and `replay` work on rule files. The others call the admin API of a running server. The server crate passes
//! `serve` to [`run`].

mod demo;
mod explain;
mod lint;
mod remote;
mod replay;

pub use remote::ENVIRONMENT_VARIABLES;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tollgate::{LoadOptions, RequestError, RuleProblem, Ruleset};

use remote::block::BlockAction;
use remote::control::ControlAction;
use remote::counters::CountersAction;
use remote::emergency::EmergencyAction;
use remote::quota::QuotaAction;
use remote::resource::{DomainCommand, GlobalCommand};
use remote::rule::RuleAction;
use remote::switch::SwitchAction;
use remote::tier::TierAction;
use remote::token::TokenAction;

/// The command `serve`, which is also the default command.
#[derive(Clone, Copy, Debug)]
pub struct ServeCommand {
    /// Adds its flags to a command.
    pub add_flags: fn(clap::Command) -> clap::Command,
    /// The text after the flags in the help.
    pub after_help: &'static str,
    /// Runs the command with its flags.
    pub run: fn(&ArgMatches) -> ExitCode,
}

/// The name of [`ServeCommand`] on the command line.
const SERVE: &str = "serve";

/// A distributed rate limiter: decides for every API request whether it may pass
///
/// Without a command it runs the server: `tollgate` is the same as `tollgate serve`, with the same flags.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
struct Cli {}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check rule files: every error and warning, with its line and a remedy
    Lint(lint::Lint),
    /// Show which rules apply to a request, and why the others do not
    Explain(explain::Explain),
    /// Replay recorded requests, one JSON object per line on standard input, at their own times
    Replay(replay::Replay),
    /// Manage tiers and limits of single callers, one by one or in bulk
    Quota(DomainCommand<QuotaAction>),
    /// List tiers, and move callers between them
    Tier(DomainCommand<TierAction>),
    /// Show how much of its limits a caller has used
    Usage(remote::usage::Usage),
    /// Show, reset, credit or debit the counters of a caller
    Counters(DomainCommand<CountersAction>),
    /// Manage rules by API, above the rule files: versions, states, differences
    Rule(DomainCommand<RuleAction>),
    /// Switch a rule, a domain or everything to off, shadow, soft or enforce
    Switch(GlobalCommand<SwitchAction>),
    /// Block callers and address ranges
    Block(DomainCommand<BlockAction>),
    /// Manage limits that override all others for a while
    Emergency(DomainCommand<EmergencyAction>),
    /// Show the audit log
    Audit(remote::audit::Audit),
    /// Explain why a caller was limited: the denial nearest to a time
    Why(remote::why::Why),
    /// Manage tokens of the admin API
    Token(GlobalCommand<TokenAction>),
    /// Show the store of record, and accept another one
    Control(GlobalCommand<ControlAction>),
    /// Show live activity of a server: decisions, rules, top keys
    #[cfg(feature = "top")]
    Top(remote::top::Top),
    /// Generate traffic for the demo: many callers, a noisy one, and a bad deploy
    #[command(hide = true)]
    DemoLoad(demo::DemoLoad),
}

/// The option `--rules`.
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

Exit codes:
  0  success
  1  errors in rules or input, or an error response from the server
  2  invalid arguments, or a server that can't be reached";

/// The exit code for errors in rules or input, and for error responses.
const EXIT_FAILURE: u8 = 1;
/// The exit code for invalid arguments, and for a server that can't be reached.
pub const EXIT_USAGE: u8 = 2;

/// Runs the command that the process was started with.
pub fn run(serve: ServeCommand) -> ExitCode {
    match Invocation::parse(serve) {
        Ok(Invocation::Serve(matches)) => (serve.run)(&matches),
        Ok(Invocation::Other(command)) => command.run(),
        Err(error) => {
            // A closed output is not an error for a help text.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 })
        }
    }
}

/// A parsed command line.
enum Invocation {
    /// `serve`, with its flags.
    Serve(ArgMatches),
    Other(Box<Command>),
}

impl Invocation {
    fn parse(serve: ServeCommand) -> Result<Invocation, clap::Error> {
        let matches = command(serve).try_get_matches()?;
        match matches.subcommand() {
            None => Ok(Invocation::Serve(matches)),
            Some((SERVE, flags)) => Ok(Invocation::Serve(flags.clone())),
            Some(_) => Command::from_arg_matches(&matches).map(|command| Invocation::Other(Box::new(command))),
        }
    }
}

/// All commands. Without one, the flags of `serve` are accepted but not shown.
fn command(serve: ServeCommand) -> clap::Command {
    let root = (serve.add_flags)(Cli::command()).mut_args(|flag| flag.hide(true)).args_conflicts_with_subcommands(true);
    let serve = (serve.add_flags)(clap::Command::new(SERVE))
        .about("Run the server: Envoy's protocol, HTTP and RESP. This is the default command")
        .after_help(serve.after_help);
    Command::augment_subcommands(root.subcommand(serve))
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
            Command::Control(control) => control.run(),
            #[cfg(feature = "top")]
            Command::Top(top) => top.run(),
            Command::DemoLoad(load) => load.run(),
        }
    }
}

impl RulesArgs {
    /// Loads the rules; errors have been printed.
    fn load(&self) -> Result<Ruleset, ExitCode> {
        let loaded = Ruleset::load(&[&self.rules], &self.loading.options(), 1);
        loaded.map(|(ruleset, _)| ruleset).map_err(|problems| {
            let text: String = problems.iter().map(|problem: &RuleProblem| format!("{problem}\n")).collect();
            print_error(text.trim_end());
            ExitCode::from(EXIT_FAILURE)
        })
    }
}

impl LoadingArgs {
    fn options(&self) -> LoadOptions {
        LoadOptions { merge_domains: self.merge_domains, ..LoadOptions::default() }
    }
}

/// Writes to standard output and returns the exit code. A closed output is not an error.
pub fn write_output(text: &str, code: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            print_error(format_args!("standard output can't be written: {error}"));
            ExitCode::from(EXIT_FAILURE)
        }
        _ => ExitCode::from(code),
    }
}

/// Writes a line to standard error. Failures are ignored: there is nowhere else to report them.
pub fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `1 rule`, `2 rules`.
fn pluralize(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// The error of an invalid request, with the names of the domains.
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
