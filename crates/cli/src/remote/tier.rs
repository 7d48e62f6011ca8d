//! `tollgate tier`: the tiers of callers, without changing their overrides.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use tollgate_records::Rfc3339;
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
    /// Show a caller's tier
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
            TierAction::Get { caller } => match client.send(ApiRequest::get(QUOTAS.path(&[caller], domain))) {
                Err(CommandError::Rejected(response)) if response.code() == "not_found" => {
                    print_default(client, domain, caller, response)
                }
                response => {
                    show::print(client, &response?, |quota| format!("{}\n", show::clean(&show::text(&quota["tier"]))))
                }
            },
            TierAction::List => list(client, domain),
        }
    }
}

/// Prints the tier of a caller without a quota, in the only domain with callers; without such a domain, the error of the server.
fn print_default(client: &AdminClient, domain: Option<&str>, caller: &str, error: ErrorResponse) -> CommandResult {
    let get = |what: &str| client.send(ApiRequest::get(ApiPath::new(&["admin", "v1", what])))?.value();
    let domains = get("domains")?;
    let of_callers = show::items(&domains)?.iter().filter(|item| item["entity"].is_string());
    let names: Vec<&str> = of_callers.filter_map(|item| item["name"].as_str()).collect();
    let chosen = match (domain, names.as_slice()) {
        (Some(domain), _) => domain,
        (None, [only]) => only,
        _ => return Err(CommandError::Rejected(error)),
    };
    let tiers = get("tiers")?;
    let all = tiers["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let default = all.iter().find(|tier| tier["domain"] == chosen && tier["default"] == true);
    let Some(tier) = default.and_then(|tier| tier["tier"].as_str()) else {
        return Err(CommandError::Rejected(error));
    };
    if client.json {
        let document = json!({"caller": caller, "domain": chosen, "tier": tier, "default": true});
        return write_stdout(format!("{document}\n"));
    }
    write_stdout(format!("{} (the default)\n", show::clean(tier)))
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
