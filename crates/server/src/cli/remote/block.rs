//! `tollgate block`: callers and address ranges that are not served.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::{UntilArgs, put};
use super::{DomainArgs, Done};

/// Blocks.
#[derive(Debug, Args)]
pub(in crate::cli) struct Block {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Block a caller, callers with names like this, or an address range
    #[command(after_help = "Examples:\n  \
        tollgate block add abc123 --reason 'leaked key' --for 1h\n  \
        tollgate block add 192.0.2.0/24 --status 429 --reason scraping")]
    Add {
        /// A caller, a name with *, an address or a network
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
        /// What it is told: 403 or 429; 403 by default
        #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(403..=429), conflicts_with = "shadow")]
        status: Option<u16>,
        /// Serve it, and mark it for the gateway
        #[arg(long)]
        shadow: bool,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        until: UntilArgs,
    },
    /// List who is blocked
    #[command(after_help = "Example:\n  tollgate block list")]
    List {
        /// Whose names begin like this
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// At most so many; by default all
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Show a block
    #[command(after_help = "Example:\n  tollgate block show abc123")]
    Show {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
    },
    /// End a block
    #[command(after_help = "Example:\n  tollgate block remove 192.0.2.0/24")]
    Remove {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
    },
}

const COLUMNS: Columns = &[
    ("WHO", |item| show::text(&item["name"])),
    ("DOMAIN", |item| item["domain"].as_str().unwrap_or("all").to_owned()),
    ("IS TOLD", |item| if item["shadow"] == true { "200, marked".to_owned() } else { show::text(&item["status"]) }),
    ("IN FORCE", show::in_force),
    ("UNTIL", |item| show::end(&item["expires_at"])),
    ("BY", |item| show::text(&item["updated_by"])),
    ("REASON", |item| show::text(&item["reason"])),
];

impl Block {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let domain = self.domain.domain.as_deref();
        let one = |who: &str| Path::of(&["admin", "v1", "blocks", who]).with("domain", domain);
        match &self.what {
            What::Add { who, status, shadow, reason, until } => {
                let mut body = Map::new();
                put(&mut body, "status", *status);
                put(&mut body, "shadow", shadow.then_some(true));
                put(&mut body, "reason", Some(reason.as_str()));
                until.put(&mut body);
                let answer = remote.ask(Call::new(Method::PUT, one(who)).json(Value::Object(body)))?;
                show::tell(remote, &answer, |answer| {
                    let (who, end) = (show::clean(&show::text(&answer["name"])), show::end(&answer["expires_at"]));
                    format!("{who} is blocked; until: {end}; `tollgate block remove` ends it\n")
                })
            }
            What::List { prefix, limit } => {
                let path =
                    Path::of(&["admin", "v1", "blocks"]).with("domain", domain).with("prefix", prefix.as_deref());
                show::list(remote, &path, *limit, COLUMNS, "nobody is blocked")
            }
            What::Show { who } => show::tell(remote, &remote.ask(Call::get(one(who)))?, |answer| {
                show::Table::new(COLUMNS).lines(std::slice::from_ref(answer))
            }),
            What::Remove { who } => {
                let answer = remote.ask(Call::delete(one(who)))?;
                show::tell(remote, &answer, |_| format!("{} is not blocked any more\n", show::clean(who)))
            }
        }
    }
}
