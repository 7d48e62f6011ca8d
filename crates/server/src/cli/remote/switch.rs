//! `tollgate switch`: how rules refuse, whatever their files say.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::{UntilArgs, put};
use super::{Done, Failure};

/// Switches.
#[derive(Debug, Args)]
pub(in crate::cli) struct Switch {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the switches that are set
    #[command(after_help = "Example:\n  tollgate switch list")]
    List {
        /// Of this domain
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
    },
    /// Set a switch
    #[command(after_help = "Examples:\n  \
        tollgate switch set everything shadow --for 30m --reason 'incident 12'\n  \
        tollgate switch set shop/orders off --reason 'refuses the wrong ones'")]
    Set {
        /// everything, DOMAIN, or DOMAIN/RULE
        target: String,
        mode: Mode,
        #[command(flatten)]
        until: UntilArgs,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Take a switch away: what the files say holds again
    #[command(after_help = "Example:\n  tollgate switch clear shop/orders")]
    Clear {
        /// everything, DOMAIN, or DOMAIN/RULE
        target: String,
    },
}

/// How rules refuse.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// They are not looked at: the kill switch
    Off,
    /// They count and let all pass
    Shadow,
    /// They say that somebody is over, and let it pass
    Soft,
    /// They refuse
    Enforce,
}

const COLUMNS: Columns = &[
    ("WHAT", |item| match (item["domain"].as_str(), item["rule"].as_str()) {
        (Some(domain), Some(rule)) => format!("{domain}/{rule}"),
        (Some(domain), None) => domain.to_owned(),
        (None, _) => "everything".to_owned(),
    }),
    ("MODE", |item| show::text(&item["mode"])),
    ("IN FORCE", show::in_force),
    ("UNTIL", |item| show::end(&item["expires_at"])),
    ("BY", |item| show::text(&item["updated_by"])),
    ("REASON", |item| show::text(&item["reason"])),
];

impl Switch {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        match &self.what {
            What::List { domain } => {
                let path = Path::of(&["admin", "v1", "switches"]).with("domain", domain.as_deref());
                show::list(remote, &path, None, COLUMNS, "no switch is set: all rules do what they say")
            }
            What::Set { target, mode, until, reason } => {
                let mut body = Map::new();
                put(&mut body, "mode", Some(mode.name()));
                put(&mut body, "reason", reason.as_deref());
                until.put(&mut body);
                let call = Call::new(Method::PUT, place(target)?).json(Value::Object(body));
                show::tell(remote, &remote.ask(call)?, |answer| {
                    let end = if answer["expires_at"].is_null() {
                        format!("`tollgate switch clear {}` takes it away", show::clean(target))
                    } else {
                        format!("it ends {}", show::time(&answer["expires_at"]))
                    };
                    format!("{} is {}; {end}\n", show::clean(target), mode.name())
                })
            }
            What::Clear { target } => {
                let answer = remote.ask(Call::delete(place(target)?))?;
                show::tell(remote, &answer, |_| format!("{} does what the rules say\n", show::clean(target)))
            }
        }
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Shadow => "shadow",
            Mode::Soft => "soft",
            Mode::Enforce => "enforce",
        }
    }
}

/// The path of a switch.
fn place(target: &str) -> Result<Path, Failure> {
    const SWITCHES: [&str; 3] = ["admin", "v1", "switches"];
    let parts = match target.split_once('/') {
        None if target == "everything" => vec!["everything"],
        None => vec!["domains", target],
        Some((domain, rule)) => vec!["domains", domain, "rules", rule],
    };
    if parts.contains(&"") {
        return Err(Failure::Usage(format!(
            "{} is no target; write everything, DOMAIN or DOMAIN/RULE",
            show::clean(target)
        )));
    }
    Ok(Path::of(&[&SWITCHES, &*parts].concat()))
}
