//! The command line of `tollgate`. Each command has a module with its arguments.
//!
//! `lint`, `explain` and `replay` work on rule files, `gateway` on the file of a gateway, `simulate` and `size` on their own. The others call the admin API of a
//! running server. The server crate passes `serve` to [`run`].

mod convert;
mod demo;
mod documents;
mod explain;
mod gateway;
mod init;
mod invocation;
mod lint;
mod remote;
mod replay;
mod rules_args;
mod simulate;
mod size;
mod spelling_args;
mod style;

pub use remote::ENVIRONMENT_VARIABLES;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{ArgMatches, Parser, Subcommand};
use tollgate::{RequestError, Ruleset};

use invocation::Invocation;
use remote::block::BlockAction;
use remote::control::ControlAction;
use remote::counters::CountersAction;
use remote::emergency::EmergencyAction;
use remote::plans::PlansAction;
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
    /// The id of its arguments without a flag, which are rule files.
    pub paths: &'static str,
    /// The text after the flags in the help.
    pub after_help: &'static str,
    /// Runs the command with its flags.
    pub run: fn(&ArgMatches) -> ExitCode,
}

/// The name of the program.
const NAME: &str = "tollgate";

/// A distributed rate limiter: decides for every API request whether it may pass
///
/// Without a command it runs the server: `tollgate` is the same as `tollgate serve`, with the same flags (`tollgate serve --help`).
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = EXAMPLES, override_usage = USAGE)]
struct Cli {}

const USAGE: &str = "tollgate [FLAGS] [PATH]...   runs the server; `tollgate serve --help` lists the flags
       tollgate COMMAND";

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a first rule file: for API keys, logins, LLM tokens or Envoy
    Init(init::Init),
    /// Check rule files: every error and warning, with its line and a remedy
    Lint(lint::Lint),
    /// Show which rules apply to a request, and why the others do not
    Explain(explain::Explain),
    /// Check the file of a gateway, and show what it does with a request
    Gateway(gateway::GatewayCommand),
    /// Replay recorded requests or an access log on standard input, at their own times
    Replay(replay::Replay),
    /// Show what a change of rules would do to recent traffic: requests and callers newly refused or admitted
    Plan(remote::plan::PlanCommand),
    /// List, approve or drop changes that wait for a confirmation
    Plans(GlobalCommand<PlansAction>),
    /// Simulate a fleet that shares limits: what it admits, how often it calls the store, what faults change
    Simulate(simulate::Simulate),
    /// Compute what a fleet needs from its traffic: Redis instances, memory, connections, cores
    Size(size::Size),
    /// Convert limits of nginx, Kong, Limitador or express-rate-limit to rules
    Convert(convert::Convert),
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
    /// Show the hot keys of which a server leases units, switch leases off and on, or purge keys
    Leases(remote::leases::Leases),
    /// Show the other regions: whether debits arrive, how late, and what that means for rules
    Regions(remote::regions::Regions),
    /// Show raised signals: many accounts behind an address, and the like
    Signals(remote::signals::Signals),
    /// Show what happened: starts, reloads, changes; the sinks that events are sent to
    Events(remote::events::Events),
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
    /// Print a completion script for a shell
    Completions(documents::Completions),
    /// Print the man page, or write the pages of all commands to a directory
    Man(documents::ManPages),
    /// Print the version
    Version,
    /// Generate traffic for the demo: many callers, a noisy one, and a bad deploy
    #[command(hide = true)]
    DemoLoad(demo::DemoLoad),
    /// Serve requests for the demo of the gateway, slower from time to time
    #[command(hide = true)]
    DemoUpstream(demo::DemoUpstream),
    /// Pass bytes on for the demo of regions, with a delay, and stand still on demand
    #[command(hide = true)]
    DemoRelay(demo::DemoRelay),
    /// Generate traffic for the demo of regions, and compare what passed with the limits
    #[command(hide = true)]
    DemoRegions(demo::DemoRegions),
}

const EXAMPLES: &str = "\
Examples:
  tollgate init
  tollgate rules.yaml
  tollgate lint rules.yaml
  tollgate explain rules.yaml api_key=ada endpoint='POST /orders'
  tollgate gateway check gateway.yaml
  tollgate replay rules.yaml < requests.jsonl > decisions.jsonl
  tollgate plan rules.yaml
  tollgate simulate exercise
  tollgate size --rps 1M --keys 5M --servers 500
  tollgate quota set ada --tier pro --override-rule orders=500/minute
  tollgate usage ada
  tollgate top
  tollgate why ada --at 14:32:17

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
        Ok(Invocation::Other(command)) => command.run(serve),
        Err(error) => {
            // A closed output is not an error for a help text.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 })
        }
    }
}

impl Command {
    fn run(&self, serve: ServeCommand) -> ExitCode {
        match self {
            Command::Init(init) => init.run(),
            Command::Completions(completions) => completions.run(invocation::command(serve)),
            Command::Man(pages) => pages.run(invocation::command(serve)),
            Command::Version => write_output(&format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")), 0),
            Command::Lint(lint) => lint.run(),
            Command::Explain(explain) => explain.run(),
            Command::Gateway(gateway) => gateway.run(),
            Command::Replay(replay) => replay.run(),
            Command::Plan(plan) => plan.run(),
            Command::Plans(plans) => plans.run(),
            Command::Simulate(simulate) => simulate.run(),
            Command::Size(size) => size.run(),
            Command::Convert(convert) => convert.run(),
            Command::Quota(quota) => quota.run(),
            Command::Tier(tier) => tier.run(),
            Command::Usage(usage) => usage.run(),
            Command::Counters(counters) => counters.run(),
            Command::Rule(rule) => rule.run(),
            Command::Switch(switch) => switch.run(),
            Command::Block(block) => block.run(),
            Command::Emergency(emergency) => emergency.run(),
            Command::Events(events) => events.run(),
            Command::Audit(audit) => audit.run(),
            Command::Leases(leases) => leases.run(),
            Command::Regions(regions) => regions.run(),
            Command::Signals(signals) => signals.run(),
            Command::Why(why) => why.run(),
            Command::Token(token) => token.run(),
            Command::Control(control) => control.run(),
            #[cfg(feature = "top")]
            Command::Top(top) => top.run(),
            Command::DemoLoad(load) => load.run(),
            Command::DemoUpstream(upstream) => upstream.run(),
            Command::DemoRelay(relay) => relay.run(),
            Command::DemoRegions(regions) => regions.run(),
        }
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
