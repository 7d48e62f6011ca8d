//! `tollgate tier`: the tiers of callers, without touching what else they have.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};
use tollgate::control::Moment;
use tollgate_store::{Clock as _, SystemClock};

use super::client::{Answer, Call, Remote};
use super::path::Path;
use super::quota::one;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::put;
use super::{DomainArgs, Done, Failure, Refusal};

/// Tiers.
#[derive(Debug, Args)]
pub(in crate::cli) struct Tier {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Move a caller to a tier; its overrides stay
    #[command(after_help = "Example:\n  tollgate tier set abc123 enterprise --reason 'contract 17'")]
    Set {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
        tier: String,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show a caller's tier
    #[command(after_help = "Example:\n  tollgate tier get abc123")]
    Get {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
    },
    /// List the tiers that the rules have
    #[command(after_help = "Example:\n  tollgate tier list")]
    List,
}

/// How often a change is tried again that somebody else was faster than.
const TRIES: usize = 10;
/// How many domains are asked for at once.
const PAGE: u64 = 1_000;

const COLUMNS: Columns = &[
    ("DOMAIN", |item| show::text(&item["name"])),
    ("CALLERS ARE", |item| show::text(&item["entity"])),
    ("TIERS", |item| show::text(&item["tiers"])),
];

impl Tier {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let domain = self.domain.domain.as_deref();
        match &self.what {
            What::Set { caller, tier, reason } => {
                let answer = set(remote, one(caller, domain), tier, reason.as_deref())?;
                show::tell(remote, &answer, |quota| {
                    format!("{} is of tier {} now\n", show::clean(caller), show::clean(&show::text(&quota["tier"])))
                })
            }
            What::Get { caller } => {
                let answer = remote.ask(Call::get(one(caller, domain)))?;
                show::tell(remote, &answer, |quota| format!("{}\n", show::clean(&show::text(&quota["tier"]))))
            }
            What::List => list(remote, domain),
        }
    }
}

/// Changes the tier of what is there. Who writes in between is not overwritten.
fn set(remote: &Remote, path: Path, tier: &str, reason: Option<&str>) -> Result<Answer, Failure> {
    let mut tries = TRIES;
    loop {
        let put = Call::new(Method::PUT, path.clone());
        let call = match remote.ask(Call::get(path.clone())) {
            Ok(answer) => put.json(changed(&answer.value()?, tier, reason)?).if_match(answer.tag.as_deref()),
            Err(Failure::Refused(Refusal { status: 404, problem, .. })) if problem["code"] == "not_found" => {
                put.json(changed(&Value::Null, tier, reason)?).if_absent()
            }
            Err(other) => return Err(other),
        };
        tries -= 1;
        match remote.ask(call) {
            Err(Failure::Refused(Refusal { status: 412, .. })) if tries > 0 => {}
            done => return done,
        }
    }
}

/// What is there, with another tier. What has ended is not brought back.
fn changed(quota: &Value, tier: &str, reason: Option<&str>) -> Result<Value, Failure> {
    if let Some(begins) = quota["scheduled"]["effective_at"].as_str() {
        let what =
            format!("a change is scheduled for {begins} and would get lost; say all of it with `tollgate quota set`");
        return Err(Failure::Undone(what));
    }
    let end = quota["expires_at"].as_str().and_then(|end| end.parse::<Moment>().ok());
    let mut body = Map::new();
    put(&mut body, "tier", Some(tier));
    put(&mut body, "reason", reason);
    if end.is_none_or(|end| end.0 > SystemClock::default().now()) {
        put(&mut body, "overrides", Some(quota["quotas"]["overrides"].clone()).filter(Value::is_array));
        for member in ["effective_at", "expires_at"] {
            put(&mut body, member, Some(quota[member].clone()).filter(Value::is_string));
        }
    }
    Ok(Value::Object(body))
}

fn list(remote: &Remote, domain: Option<&str>) -> Done {
    let mut table = show::Table::new(COLUMNS);
    let mut offset = 0;
    loop {
        let path = Path::of(&["admin", "v1", "domains"]).with("domain", domain);
        let path = path.with("limit", Some(PAGE.to_string())).with("offset", Some(offset.to_string()));
        let page = show::items_told(remote, &mut table, &remote.ask(Call::get(path))?)?;
        offset += page;
        if page < PAGE {
            return Ok(());
        }
    }
}
