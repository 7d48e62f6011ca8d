//! `tollgate quota`: tiers and limits of single callers.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate_records::Rfc3339;
use tollgate_rules::limit_text;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::resource::{Action, RequestBody, Resource};
use super::show::{self, Columns};
use super::{CommandError, CommandResult, bulk};

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaAction {
    /// Show a caller's quota
    #[command(after_help = "Example:\n  tollgate quota get ada")]
    Get {
        /// The caller: the value of the domain's `entity`, such as an API key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
    },
    /// Replace a caller's quota; what is omitted is removed
    #[command(after_help = "Examples:\n  \
        tollgate quota set ada --tier pro --reason 'ticket 4711'\n  \
        tollgate quota set ada --override 'endpoint:POST /orders*=500/minute'\n  \
        tollgate quota set 'trial-*' --override-rule per-key=20/minute --for 30d")]
    Set(SetQuota),
    /// Delete a caller's quota: the rules apply to it as to others
    #[command(after_help = "Example:\n  tollgate quota delete ada")]
    Delete {
        /// The caller: the value of the domain's `entity`, such as an API key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
        /// Only if this is the generation of the quota
        #[arg(long, value_name = "N")]
        if_match: Option<u64>,
    },
    /// List callers with a quota of their own
    #[command(after_help = "Example:\n  tollgate quota list --tier enterprise --prefix acme-")]
    List {
        /// Only of this tier
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Only names with this prefix
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// The maximum number; all by default
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Write many quotas, one JSON object per line; all are checked before the first is written
    #[command(after_help = "Examples:\n  \
        tollgate quota import quotas.jsonl --dry-run\n  \
        tollgate quota export |\n    \
        tollgate quota import - --server https://other:8070 --ca ca.pem")]
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// Check the file, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Export all quotas as JSON lines, in the format of `import`
    #[command(after_help = "Example:\n  tollgate quota export quotas.jsonl")]
    Export {
        /// The file; standard output by default
        file: Option<PathBuf>,
        /// Only of this tier
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Only names with this prefix
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetQuota {
    /// The caller, or a pattern of names: acme-*
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    caller: String,
    /// The tier
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// A limit that replaces those of rules with this descriptor: 'endpoint:POST /orders=500/minute', default=100/minute
    #[arg(long, value_name = "DESCRIPTOR=LIMIT")]
    r#override: Vec<String>,
    /// A limit that replaces this rule's: per-key=500/minute, exports='2 concurrent', search=unlimited
    #[arg(long, value_name = "RULE=LIMIT")]
    override_rule: Vec<String>,
    /// When it takes effect: 2026-12-01T00:00:00Z; the current quota stays until then
    #[arg(long, value_name = "MOMENT")]
    effective_at: Option<String>,
    /// When it ends
    #[arg(long, value_name = "MOMENT", conflicts_with = "for")]
    expires_at: Option<String>,
    /// Or how long it lasts: 1h, 30d
    #[arg(long, value_name = "TIME")]
    r#for: Option<String>,
    /// Reset the caller's counters
    #[arg(long)]
    reset: bool,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only if this is the generation of the quota
    #[arg(long, value_name = "N")]
    if_match: Option<u64>,
}

pub(super) const QUOTAS: Resource = Resource {
    path: &["admin", "v1", "quotas"],
    columns: &[
        ("CALLER", |item| show::text(&item["api_key"])),
        ("TIER", |item| show::text(&item["tier"])),
        ("OVERRIDES", |item| item["overrides"].as_array().map_or(0, Vec::len).to_string()),
        ("FROM", |item| show::time(&item["effective_at"])),
        ("UNTIL", |item| show::expiry(&item["expires_at"])),
        ("UPDATED", |item| show::time(&item["updated_at"])),
        ("BY", |item| show::text(&item["updated_by"])),
    ],
    empty: "no quotas; `tollgate quota set CALLER` creates one",
};

const OVERRIDES: Columns = &[
    ("OVERRIDE", |item| match item["rule"].as_str() {
        Some(rule) => format!("rule {rule}"),
        None => show::text(&item["descriptor"]),
    }),
    ("LIMIT", show::limit),
    // As long as the quota, if empty.
    ("FROM", |item| show::time(&item["effective_at"])),
    ("UNTIL", |item| show::time(&item["expires_at"])),
];

impl Action for QuotaAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        let filtered = |path: ApiPath, tier: &Option<String>, prefix: &Option<String>| {
            path.with("tier", tier.as_deref()).with("prefix", prefix.as_deref())
        };
        let response = match self {
            QuotaAction::Get { caller } => client.send(ApiRequest::get(QUOTAS.path(&[caller], domain)))?,
            QuotaAction::Set(set) => {
                let request = ApiRequest::put(QUOTAS.path(&[&set.caller], domain)).json(set.body()?);
                client.send(request.if_match(entity_tag(set.if_match).as_deref()))?
            }
            QuotaAction::Delete { caller, if_match } => {
                let request = ApiRequest::delete(QUOTAS.path(&[caller], domain));
                let response = client.send(request.if_match(entity_tag(*if_match).as_deref()))?;
                let done = |_: &Value| format!("{} has no quota any more\n", show::clean(caller));
                return show::print(client, &response, done);
            }
            QuotaAction::List { tier, prefix, limit } => {
                return QUOTAS.list(client, &filtered(QUOTAS.path(&[], domain), tier, prefix), *limit);
            }
            QuotaAction::Import { file, dry_run } => return bulk::import(client, file, domain, *dry_run),
            QuotaAction::Export { file, tier, prefix } => {
                let path = ApiPath::new(&["admin", "v1", "export"]).with("domain", domain);
                return bulk::export(client, file.as_deref(), filtered(path, tier, prefix));
            }
        };
        show::print(client, &response, |quota| to_text(quota, response.tag.as_deref()))
    }
}

/// A generation as an entity tag, for `If-Match`.
pub(super) fn entity_tag(generation: Option<u64>) -> Option<String> {
    generation.map(|generation| format!("\"{generation}\""))
}

impl SetQuota {
    fn body(&self) -> Result<RequestBody, CommandError> {
        if self.tier.is_none() && self.r#override.is_empty() && self.override_rule.is_empty() {
            let message =
                "the quota is empty: write --tier, --override or --override-rule; `tollgate quota delete` deletes it";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let mut overrides = Vec::new();
        for text in &self.r#override {
            let (descriptor, limit) = split_limit("--override", text)?;
            overrides.push(json!({"descriptor": descriptor, "limit": limit}));
        }
        for text in &self.override_rule {
            let (rule, limit) = split_limit("--override-rule", text)?;
            overrides.push(json!({"rule": rule, "limit": limit}));
        }
        Ok(RequestBody::new()
            .with("tier", self.tier.as_deref())
            .with("overrides", Some(overrides))
            .with("effective_at", self.effective_at.as_deref())
            .with("expires_at", self.expires_at()?)
            .with("for", self.lasts())
            .with("reason", self.reason.as_deref())
            .with("reset", Some(self.reset)))
    }

    /// When it ends, if that is known. A duration starts when the quota takes effect.
    fn expires_at(&self) -> Result<Option<String>, CommandError> {
        let Some(duration) = &self.r#for else { return Ok(self.expires_at.clone()) };
        let duration =
            limit_text::duration(duration).map_err(|fault| CommandError::Usage(format!("--for: {fault}")))?;
        let Some(text) = &self.effective_at else { return Ok(None) };
        let begin = text.parse::<Rfc3339>().map_err(|error| CommandError::Usage(format!("--effective-at: {error}")))?;
        Ok(Some(Rfc3339(begin.0.after(duration)).to_string()))
    }

    /// How long it lasts from now on: by the clock of the server, so that the command can be repeated with a confirmation.
    fn lasts(&self) -> Option<&str> {
        self.r#for.as_deref().filter(|_| self.effective_at.is_none())
    }
}

/// Splits at the last `=`: limits contain none.
fn split_limit<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), CommandError> {
    let halves = text.rsplit_once('=').map(|(target, limit)| (target.trim(), limit.trim()));
    halves.filter(|(target, limit)| !target.is_empty() && !limit.is_empty()).ok_or_else(|| {
        let message = format!(
            "{flag}: {} has no limit; write for instance 'endpoint:POST /orders=500/minute'",
            show::clean(text)
        );
        CommandError::Usage(message)
    })
}

/// A quota as text.
fn to_text(quota: &Value, tag: Option<&str>) -> String {
    let mut fields = vec![
        ("caller", show::text(&quota["api_key"])),
        ("domain", show::text(&quota["domain"])),
        ("tier", show::text(&quota["tier"])),
        ("default", show::limit(&quota["quotas"]["default"])),
    ];
    for (name, member) in [("from", "effective_at"), ("until", "expires_at"), ("updated", "updated_at")] {
        fields.extend((!quota[member].is_null()).then(|| (name, show::time(&quota[member]))));
    }
    for (name, member) in [("by", "updated_by"), ("reason", "reason")] {
        fields.extend(quota[member].as_str().map(|value| (name, value.to_owned())));
    }
    fields.extend(tag.map(|tag| ("generation", tag.trim_matches('"').to_owned())));
    let mut text = show::fields(&fields);
    if let Some(overrides) = quota["quotas"]["overrides"].as_array().filter(|overrides| !overrides.is_empty()) {
        text.push('\n');
        text.push_str(&show::TextTable::new(OVERRIDES).lines(overrides));
    }
    let scheduled = &quota["scheduled"];
    if scheduled.is_object() {
        let (begins, tier) = (show::time(&scheduled["effective_at"]), show::clean(&show::text(&scheduled["tier"])));
        text.push_str(&format!("\nFrom {begins} on: tier {tier}\n"));
        if let Some(overrides) = scheduled["overrides"].as_array().filter(|overrides| !overrides.is_empty()) {
            text.push_str(&show::TextTable::new(OVERRIDES).lines(overrides));
        }
    }
    text
}
