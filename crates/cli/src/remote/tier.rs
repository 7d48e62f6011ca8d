//! `tollgate tier`: the tiers of callers, without changing their overrides.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use tollgate_records::Rfc3339;
use tollgate_rules::quoted;
use tollgate_store::{Clock as _, SystemClock};

use super::client::{AdminClient, ApiRequest, ApiResponse};
use super::path::ApiPath;
use super::quota::QUOTAS;
use super::resource::{Action, RequestBody};
use super::show::{self, Columns};
use super::{CommandError, CommandResult, ErrorResponse, write_stdout};

#[derive(Debug, Subcommand)]
pub(crate) enum TierAction {
    /// Move a caller to a tier; its overrides stay
    #[command(after_help = "Example:\n  tollgate tier set ada enterprise --reason 'contract 17'")]
    Set {
        /// The caller: the value of the domain's `entity`, such as an API key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
        /// The tier, one of those of the rules
        tier: String,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show the tier that a caller is in, and where it comes from
    #[command(after_help = "Example:\n  tollgate tier get ada")]
    Get {
        /// The caller: the value of the domain's `entity`, such as an API key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        caller: String,
    },
    /// List the tiers of the rules
    #[command(after_help = "Example:\n  tollgate tier list")]
    List,
}

/// Attempts to change a tier while others write to the same quota.
const MAX_TRIES: usize = 10;
/// Domains of a page.
const PAGE_SIZE: u64 = 1_000;

const COLUMNS: Columns = &[
    ("DOMAIN", |item| show::text(&item["name"])),
    ("CALLERS ARE", |item| show::text(&item["entity"])),
    ("TIERS", |item| show::text(&item["tiers"])),
];

impl Action for TierAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        match self {
            TierAction::Set { caller, tier, reason } => {
                let response = set_tier(client, &QUOTAS.path(&[caller], domain), tier, reason.as_deref())?;
                show::print(client, &response, |quota| {
                    format!("{} has tier {} now\n", show::clean(caller), show::clean(&show::text(&quota["tier"])))
                })
            }
            TierAction::Get { caller } => {
                let path = ApiPath::new(&["admin", "v1", "usage", caller]).with("domain", domain);
                let usage = client.send(ApiRequest::get(path))?.value()?;
                write_stdout(if client.json { to_json(&usage) } else { to_text(caller, &usage) })
            }
            TierAction::List => list(client, domain),
        }
    }
}

/// The tier, and where it comes from unless operators assigned it.
fn to_text(caller: &str, usage: &Value) -> String {
    let tier = &usage["tier"];
    let name = show::clean(&show::text(&tier["name"]));
    match (tier["by"].as_str(), tier["seen_seconds_ago"].as_u64()) {
        (Some("default"), _) => format!("{name} (the default)\n"),
        (Some("request"), Some(..60)) => format!("{name} (named by its last request, within the last minute)\n"),
        (Some("request"), Some(ago)) => {
            let minutes = crate::pluralize(usize::try_from(ago / 60).unwrap_or(usize::MAX), "minute");
            format!("{name} (named by its last request, {minutes} ago)\n")
        }
        (Some(_), _) => format!("{name}\n"),
        (None, _) => format!(
            "not known: each request names its tier in {}, and this server remembers none of {}\n",
            quoted(&show::text(&usage["tier_from"])),
            show::clean(caller)
        ),
    }
}

fn to_json(usage: &Value) -> String {
    let tier = &usage["tier"];
    let mut document = json!({
        "caller": usage["api_key"],
        "domain": usage["domain"],
        "tier": tier["name"],
        "by": tier["by"],
        "tier_from": usage["tier_from"],
    });
    if tier["seen_seconds_ago"].is_u64() {
        document["seen_seconds_ago"] = tier["seen_seconds_ago"].clone();
    }
    format!("{document}\n")
}

/// Changes the tier of a quota. A concurrent write is not overwritten.
fn set_tier(
    client: &AdminClient,
    path: &ApiPath,
    tier: &str,
    reason: Option<&str>,
) -> Result<ApiResponse, CommandError> {
    let mut tries = MAX_TRIES;
    loop {
        let put = ApiRequest::put(path.clone());
        let request = match client.send(ApiRequest::get(path.clone())) {
            Ok(response) => put.json(with_tier(&response.value()?, tier, reason)?).if_match(response.tag.as_deref()),
            Err(CommandError::Rejected(ErrorResponse { status: 404, problem, .. }))
                if problem["code"] == "not_found" =>
            {
                put.json(with_tier(&Value::Null, tier, reason)?).if_absent()
            }
            Err(other) => return Err(other),
        };
        tries -= 1;
        match client.send(request) {
            Err(CommandError::Rejected(ErrorResponse { status: 412, .. })) if tries > 0 => {}
            result => return result,
        }
    }
}

/// The quota with another tier. Overrides that have ended are not restored.
fn with_tier(quota: &Value, tier: &str, reason: Option<&str>) -> Result<RequestBody, CommandError> {
    if let Some(begins) = quota["scheduled"]["effective_at"].as_str() {
        let message = format!(
            "a change is scheduled for {begins} and would be lost; write the whole quota with `tollgate quota set`"
        );
        return Err(CommandError::Failed(message));
    }
    let end = quota["expires_at"].as_str().and_then(|end| end.parse::<Rfc3339>().ok());
    let mut body = RequestBody::new().with("tier", Some(tier)).with("reason", reason);
    if end.is_none_or(|end| end.0 > SystemClock::default().now()) {
        body = body.with("overrides", Some(quota["quotas"]["overrides"].clone()).filter(Value::is_array));
        for member in ["effective_at", "expires_at"] {
            body = body.with(member, Some(quota[member].clone()).filter(Value::is_string));
        }
    }
    Ok(body)
}

fn list(client: &AdminClient, domain: Option<&str>) -> CommandResult {
    let mut table = show::TextTable::new(COLUMNS);
    let mut offset = 0;
    loop {
        let path = ApiPath::new(&["admin", "v1", "domains"]).with("domain", domain);
        let path = path.with("limit", Some(PAGE_SIZE.to_string())).with("offset", Some(offset.to_string()));
        let page = show::print_items(client, &mut table, &client.send(ApiRequest::get(path))?)?;
        offset += page;
        if page < PAGE_SIZE {
            return Ok(());
        }
    }
}
