//! `tollgate token`: who may ask the admin API, and what for.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Answer, Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::{UntilArgs, put};
use super::{Done, Failure, complain, say};

/// Tokens.
#[derive(Debug, Args)]
pub(in crate::cli) struct Token {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token; its secret is written to standard output, once
    #[command(after_help = "Examples:\n  \
        tollgate token create root --scope read --scope quota --scope rules --scope emergency --scope audit > root.token\n  \
        tollgate token create billing --scope read --scope quota --for 30d > billing.token")]
    Create {
        /// What it is called
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// What it may do; may be repeated
        #[arg(long, value_name = "SCOPE", required = true)]
        scope: Vec<Scope>,
        #[command(flatten)]
        until: UntilArgs,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List tokens, never their secrets
    #[command(after_help = "Example:\n  tollgate token list")]
    List,
    /// Give a token a new secret; the old one holds a while longer
    #[command(after_help = "Example:\n  tollgate token rotate billing --grace 1h > billing.token")]
    Rotate {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// How long the old secret holds
        #[arg(long, value_name = "TIME")]
        grace: Option<String>,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Take a token away, at once
    #[command(after_help = "Example:\n  tollgate token revoke billing")]
    Revoke {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

/// What a token may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scope {
    /// See quotas, usage, rules, switches
    Read,
    /// Change quotas, tiers and counters
    Quota,
    /// Change rules and switches
    Rules,
    /// Emergencies, kill switches and blocks
    Emergency,
    /// Read the audit log
    Audit,
    /// Ask for decisions
    Check,
}

const COLUMNS: Columns = &[
    ("NAME", |item| show::text(&item["name"])),
    ("SCOPES", |item| show::text(&item["scopes"])),
    ("UNTIL", |item| match item["expired"] == true {
        true => "over".to_owned(),
        false => show::end(&item["expires_at"]),
    }),
    ("CREATED", |item| show::time(&item["created_at"])),
    ("BY", |item| show::text(&item["created_by"])),
    ("OLD SECRET UNTIL", |item| show::time(&item["old_until"])),
];

impl Token {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        match &self.what {
            What::Create { name, scope, until, reason } => {
                let scopes: Vec<&str> = scope.iter().map(|scope| scope.name()).collect();
                let mut body = Map::new();
                put(&mut body, "name", Some(name.as_str()));
                put(&mut body, "scopes", Some(scopes));
                put(&mut body, "reason", reason.as_deref());
                until.put(&mut body);
                let call = Call::new(Method::POST, Path::of(&["admin", "v1", "tokens"])).json(Value::Object(body));
                hand_over(remote, &remote.ask(call)?)
            }
            What::List => {
                let path = Path::of(&["admin", "v1", "tokens"]);
                let none = "no tokens: only this machine is let in; `tollgate token create` makes one";
                show::list(remote, &path, None, COLUMNS, none)
            }
            What::Rotate { name, grace, reason } => {
                let mut body = Map::new();
                put(&mut body, "grace", grace.as_deref());
                put(&mut body, "reason", reason.as_deref());
                let path = Path::of(&["admin", "v1", "tokens", name, "rotate"]);
                hand_over(remote, &remote.ask(Call::new(Method::POST, path).json(Value::Object(body)))?)
            }
            What::Revoke { name } => {
                let answer = remote.ask(Call::delete(Path::of(&["admin", "v1", "tokens", name])))?;
                show::tell(remote, &answer, |_| format!("{} is no token any more\n", show::clean(name)))
            }
        }
    }
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Quota => "quota",
            Scope::Rules => "rules",
            Scope::Emergency => "emergency",
            Scope::Audit => "audit",
            Scope::Check => "check",
        }
    }
}

/// Writes the secret alone to standard output, and all else beside it.
fn hand_over(remote: &Remote, answer: &Answer) -> Done {
    if remote.json {
        return show::as_it_is(answer);
    }
    let told = answer.value()?;
    let no_secret = || Failure::Undone("the server did not tell the secret; rotate the token".to_owned());
    let secret = told["token"].as_str().ok_or_else(no_secret)?;
    let (name, scopes) = (show::clean(&show::text(&told["name"])), show::clean(&show::text(&told["scopes"])));
    complain(format_args!("token {name}: {scopes}; until: {}", show::end(&told["expires_at"])));
    if !told["old_until"].is_null() {
        complain(format_args!("the old secret holds until {}", show::time(&told["old_until"])));
    }
    complain("this is its secret; it is not shown again:");
    say(format!("{secret}\n"))
}
