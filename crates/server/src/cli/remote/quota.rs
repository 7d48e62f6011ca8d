//! `tollgate quota`: what callers have, tiers and limits of their own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use tollgate::control::Moment;
use tollgate_rules::limit_text;
use tollgate_store::{Clock as _, SystemClock};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns};
use super::until::put;
use super::{DomainArgs, Done, Failure, bulk};

/// Quotas of callers.
#[derive(Debug, Args)]
pub(in crate::cli) struct Quota {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what a caller has
    #[command(after_help = "Example:\n  tollgate quota get abc123")]
    Get {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
    },
    /// Say what a caller has from now on; what is not named here is taken away
    #[command(after_help = "Examples:\n  \
        tollgate quota set abc123 --tier pro --override 'endpoint:POST /orders=500/minute' --reason 'ticket 4711'\n  \
        tollgate quota set 'trial-*' --override-rule per-key=20/minute --for 30d")]
    Set(Set),
    /// Take away what a caller has: the rules hold for it as for others
    #[command(after_help = "Example:\n  tollgate quota delete abc123")]
    Delete {
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
        /// Only if this is its generation
        #[arg(long, value_name = "N")]
        if_match: Option<u64>,
    },
    /// List callers that have something of their own
    #[command(after_help = "Example:\n  tollgate quota list --tier enterprise --prefix acme-")]
    List {
        /// Of this tier
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Whose names begin like this
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// At most so many; by default all
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Write many quotas, one JSON object a line: all are checked before one is written
    #[command(after_help = "Examples:\n  \
        tollgate quota import quotas.jsonl --dry-run\n  \
        tollgate quota export | tollgate quota import - --server https://other:8070 --ca ca.pem")]
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// Check it, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Write all quotas as JSON lines, as `import` reads them
    #[command(after_help = "Example:\n  tollgate quota export quotas.jsonl")]
    Export {
        /// The file; standard output without one
        file: Option<PathBuf>,
        /// Of this tier
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Whose names begin like this
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Set {
    /// The caller, or callers with names like this: acme-*
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    caller: String,
    /// Its tier
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// A limit in place of the rules' that have this: 'endpoint:POST /orders=500/minute', default=100/minute
    #[arg(long, value_name = "DESCRIPTOR=LIMIT")]
    r#override: Vec<String>,
    /// A limit in place of this rule's: per-key=500/minute, exports='2 concurrent', search=unlimited
    #[arg(long, value_name = "RULE=LIMIT")]
    override_rule: Vec<String>,
    /// From when on: 2026-12-01T00:00:00Z; what there is holds until then
    #[arg(long, value_name = "MOMENT")]
    effective_at: Option<String>,
    /// Until when
    #[arg(long, value_name = "MOMENT", conflicts_with = "for")]
    expires_at: Option<String>,
    /// Or for how long from its beginning: 1h, 30d
    #[arg(long, value_name = "TIME")]
    r#for: Option<String>,
    /// Let the caller's counters start afresh
    #[arg(long)]
    reset: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only if this is its generation
    #[arg(long, value_name = "N")]
    if_match: Option<u64>,
}

const COLUMNS: Columns = &[
    ("CALLER", |item| show::text(&item["api_key"])),
    ("TIER", |item| show::text(&item["tier"])),
    ("OVERRIDES", |item| item["overrides"].as_array().map_or(0, Vec::len).to_string()),
    ("FROM", |item| show::time(&item["effective_at"])),
    ("UNTIL", |item| show::end(&item["expires_at"])),
    ("UPDATED", |item| show::time(&item["updated_at"])),
    ("BY", |item| show::text(&item["updated_by"])),
];

const OVERRIDES: Columns = &[
    ("OVERRIDE", |one| match one["rule"].as_str() {
        Some(rule) => format!("rule {rule}"),
        None => show::text(&one["descriptor"]),
    }),
    ("LIMIT", show::limit),
    // As long as the rest, where nothing is said.
    ("FROM", |one| show::time(&one["effective_at"])),
    ("UNTIL", |one| show::time(&one["expires_at"])),
];

impl Quota {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.ask(remote))
    }

    fn ask(&self, remote: &Remote) -> Done {
        let domain = self.domain.domain.as_deref();
        match &self.what {
            What::Get { caller } => {
                let answer = remote.ask(Call::get(one(caller, domain)))?;
                let tag = answer.tag.clone();
                show::tell(remote, &answer, |quota| words(quota, tag.as_deref()))
            }
            What::Set(set) => {
                let call = Call::new(Method::PUT, one(&set.caller, domain)).json(set.body()?);
                let answer = remote.ask(call.if_match(tag(set.if_match).as_deref()))?;
                let tag = answer.tag.clone();
                show::tell(remote, &answer, |quota| words(quota, tag.as_deref()))
            }
            What::Delete { caller, if_match } => {
                let call = Call::delete(one(caller, domain)).if_match(tag(*if_match).as_deref());
                let told = |_: &Value| format!("{} has nothing of its own any more\n", show::clean(caller));
                show::tell(remote, &remote.ask(call)?, told)
            }
            What::List { tier, prefix, limit } => {
                let path = Path::of(&["admin", "v1", "quotas"]).with("domain", domain);
                let path = path.with("tier", tier.as_deref()).with("prefix", prefix.as_deref());
                show::list(remote, &path, *limit, COLUMNS, "no quotas; `tollgate quota set CALLER` makes one")
            }
            What::Import { file, dry_run } => bulk::import(remote, file, domain, *dry_run),
            What::Export { file, tier, prefix } => {
                let path = Path::of(&["admin", "v1", "export"]).with("domain", domain);
                let path = path.with("tier", tier.as_deref()).with("prefix", prefix.as_deref());
                bulk::export(remote, file.as_deref(), path)
            }
        }
    }
}

/// The path of a caller's quota.
pub(super) fn one(caller: &str, domain: Option<&str>) -> Path {
    Path::of(&["admin", "v1", "quotas", caller]).with("domain", domain)
}

/// A generation, as `If-Match` has it.
pub(super) fn tag(generation: Option<u64>) -> Option<String> {
    generation.map(|generation| format!("\"{generation}\""))
}

impl Set {
    fn body(&self) -> Result<Value, Failure> {
        if self.tier.is_none() && self.r#override.is_empty() && self.override_rule.is_empty() {
            let what = "a quota says something: write --tier, --override or --override-rule; `tollgate quota delete` takes one away";
            return Err(Failure::Usage(what.to_owned()));
        }
        let mut overrides = Vec::new();
        for text in &self.r#override {
            let (descriptor, limit) = halves("--override", text)?;
            overrides.push(json!({"descriptor": descriptor, "limit": limit}));
        }
        for text in &self.override_rule {
            let (rule, limit) = halves("--override-rule", text)?;
            overrides.push(json!({"rule": rule, "limit": limit}));
        }
        let mut body = Map::new();
        put(&mut body, "tier", self.tier.as_deref());
        body.insert("overrides".to_owned(), Value::Array(overrides));
        put(&mut body, "effective_at", self.effective_at.as_deref());
        put(&mut body, "expires_at", self.end()?);
        put(&mut body, "reason", self.reason.as_deref());
        body.insert("reset".to_owned(), json!(self.reset));
        Ok(Value::Object(body))
    }

    /// When it ends: a length counts from its beginning, which is now by this machine's clock if nothing else is said.
    fn end(&self) -> Result<Option<String>, Failure> {
        let Some(length) = &self.r#for else { return Ok(self.expires_at.clone()) };
        let length = limit_text::duration(length).map_err(|fault| Failure::Usage(format!("--for: {fault}")))?;
        let begin = match &self.effective_at {
            Some(text) => text.parse::<Moment>().map_err(|what| Failure::Usage(format!("--effective-at: {what}")))?.0,
            None => SystemClock::default().now(),
        };
        Ok(Some(Moment(begin.after(length)).to_string()))
    }
}

/// What stands before the last `=`, and after it: limits have none.
fn halves<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), Failure> {
    let halves = text.rsplit_once('=').map(|(what, limit)| (what.trim(), limit.trim()));
    halves.filter(|(what, limit)| !what.is_empty() && !limit.is_empty()).ok_or_else(|| {
        let what = format!(
            "{flag}: {} has no limit; write for instance 'endpoint:POST /orders=500/minute'",
            show::clean(text)
        );
        Failure::Usage(what)
    })
}

/// A quota in words.
fn words(quota: &Value, tag: Option<&str>) -> String {
    let mut facts = vec![
        ("caller", show::text(&quota["api_key"])),
        ("domain", show::text(&quota["domain"])),
        ("tier", show::text(&quota["tier"])),
        ("default", show::limit(&quota["quotas"]["default"])),
    ];
    for (name, member) in [("from", "effective_at"), ("until", "expires_at"), ("updated", "updated_at")] {
        facts.extend((!quota[member].is_null()).then(|| (name, show::time(&quota[member]))));
    }
    for (name, member) in [("by", "updated_by"), ("reason", "reason")] {
        facts.extend(quota[member].as_str().map(|value| (name, value.to_owned())));
    }
    facts.extend(tag.map(|tag| ("generation", tag.trim_matches('"').to_owned())));
    let mut text = show::facts(&facts);
    if let Some(overrides) = quota["quotas"]["overrides"].as_array().filter(|overrides| !overrides.is_empty()) {
        text.push('\n');
        text.push_str(&show::Table::new(OVERRIDES).lines(overrides));
    }
    let next = &quota["scheduled"];
    if next.is_object() {
        let (begins, tier) = (show::time(&next["effective_at"]), show::clean(&show::text(&next["tier"])));
        text.push_str(&format!("\nFrom {begins} on: tier {tier}\n"));
        if let Some(overrides) = next["overrides"].as_array().filter(|overrides| !overrides.is_empty()) {
            text.push_str(&show::Table::new(OVERRIDES).lines(overrides));
        }
    }
    text
}
