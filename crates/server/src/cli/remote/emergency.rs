//! `tollgate emergency`: limits that go before all others, and end by themselves.

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

/// Emergencies.
#[derive(Debug, Args)]
pub(in crate::cli) struct Emergency {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List emergencies, those that ended too
    #[command(after_help = "Example:\n  tollgate emergency list")]
    List,
    /// Put an emergency in force: for an hour, unless told otherwise
    #[command(after_help = "Examples:\n  \
        tollgate emergency set halve --percent 50 --reason 'database overloaded'\n  \
        tollgate emergency set orders --rule orders --limit 10/second --callers 'trial-*' --reason flood --for 15m")]
    Set(Set),
    /// Have an emergency last longer
    #[command(after_help = "Example:\n  tollgate emergency renew halve --for 2h")]
    Renew {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        until: UntilArgs,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End an emergency
    #[command(after_help = "Example:\n  tollgate emergency end halve")]
    End {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

#[derive(Debug, Args)]
struct Set {
    /// What it is called
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The limit: 10/second, '5 concurrent'
    #[arg(long, value_name = "LIMIT", required_unless_present = "percent", conflicts_with = "percent")]
    limit: Option<String>,
    /// Or so much of what would apply
    #[arg(long, value_name = "N")]
    percent: Option<u32>,
    /// The burst of buckets
    #[arg(long, value_name = "N", requires = "limit")]
    burst: Option<u64>,
    /// For these callers: a name, or names with *; by default for all
    #[arg(long, value_name = "WHO")]
    callers: Option<String>,
    /// Of this rule; by default of every rule
    #[arg(long, value_name = "RULE", conflicts_with = "descriptor")]
    rule: Option<String>,
    /// Of the rules that have this: 'endpoint:POST /orders'
    #[arg(long, value_name = "DESCRIPTOR")]
    descriptor: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    until: UntilArgs,
}

const COLUMNS: Columns = &[
    ("NAME", |item| show::text(&item["name"])),
    ("DOMAIN", |item| item["domain"].as_str().unwrap_or("all").to_owned()),
    ("CALLERS", |item| show::text(&item["callers"])),
    ("OF", |item| match (item["rule"].as_str(), item["descriptor"].as_str()) {
        (Some(rule), _) => format!("rule {rule}"),
        (None, Some(descriptor)) => descriptor.to_owned(),
        (None, None) => "every rule".to_owned(),
    }),
    ("LIMIT", show::limit),
    ("IN FORCE", show::in_force),
    ("UNTIL", |item| show::end(&item["expires_at"])),
    ("REASON", |item| show::text(&item["reason"])),
];

impl Emergency {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let domain = self.domain.domain.as_deref();
        let one = |name: &str| Path::of(&["admin", "v1", "emergencies", name]).with("domain", domain);
        let told = |answer: &Value| {
            let (name, end) = (show::clean(&show::text(&answer["name"])), show::time(&answer["expires_at"]));
            format!("{name} is in force until {end}; `tollgate emergency renew {name}` has it last longer\n")
        };
        match &self.what {
            What::List => {
                let path = Path::of(&["admin", "v1", "emergencies"]).with("domain", domain);
                show::list(remote, &path, None, COLUMNS, "no emergencies")
            }
            What::Set(set) => {
                let call = Call::new(Method::PUT, one(&set.name)).json(set.body());
                show::tell(remote, &remote.ask(call)?, told)
            }
            What::Renew { name, until, reason } => {
                let mut body = Map::new();
                until.put(&mut body);
                put(&mut body, "reason", reason.as_deref());
                let path = Path::of(&["admin", "v1", "emergencies", name, "renew"]).with("domain", domain);
                show::tell(remote, &remote.ask(Call::new(Method::POST, path).json(Value::Object(body)))?, told)
            }
            What::End { name } => {
                let answer = remote.ask(Call::delete(one(name)))?;
                show::tell(remote, &answer, |_| format!("{} has ended\n", show::clean(name)))
            }
        }
    }
}

impl Set {
    fn body(&self) -> Value {
        let mut body = Map::new();
        for (name, value) in
            [("callers", &self.callers), ("rule", &self.rule), ("descriptor", &self.descriptor), ("limit", &self.limit)]
        {
            put(&mut body, name, value.as_deref());
        }
        put(&mut body, "percent", self.percent);
        put(&mut body, "burst", self.burst);
        put(&mut body, "reason", Some(self.reason.as_str()));
        self.until.put(&mut body);
        Value::Object(body)
    }
}
