//! Blocks: callers and address ranges that are not served.

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::control::Moment;
use tollgate::control::documents::{BlockDocument, Faults};
use tollgate::tenants::{Blocked, MOST_WIDE};
use tollgate_control::{Filter, Kind, Name, Stored};
use tollgate_rules::model::Network;
use tollgate_rules::pattern::Pattern;

use super::extract::{Path, Query, flag};
use super::records::{self, Made, Writing};
use super::until::Until;
use super::{Answer, Api, Asked, Problem, body, names, openapi};
use crate::admin::who::Scope;

/// Which blocks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    domain: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// Where a block holds, and whether its name is an address range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Where {
    domain: Option<String>,
    range: Option<String>,
}

/// What one who is blocked is told, and until when.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockBody {
    /// Whether the name is an address range; by default if it is one.
    range: Option<bool>,
    /// 403, which is the default, or 429.
    status: Option<u16>,
    /// It is served, and marked for the gateway.
    #[serde(default)]
    shadow: bool,
    /// Why.
    #[serde(default)]
    reason: String,
    /// Until when; by default for good.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    /// Or for how long: `1h`.
    r#for: Option<String>,
}

/// The most address ranges: they are copied whole when one changes.
const MOST_RANGES: usize = 10_000;

/// Who is blocked
#[utoipa::path(
    get, path = "/admin/v1/blocks", operation_id = "blocks_list", tag = "blocks",
    params(openapi::Listing, ("prefix" = Option<String>, Query, description = "Whose names begin like this")),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let filter = Filter { domain: listed.domain, prefix: listed.prefix, ..Filter::of(Kind::Block) };
    records::list(&api, &filter, listed.after.as_deref(), listed.limit, told).await
}

/// A block
#[utoipa::path(
    get, path = "/admin/v1/blocks/{name}", operation_id = "blocks_show", tag = "blocks", params(openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(place): Query<Where>,
) -> Answer {
    asked.may(Scope::Read)?;
    records::show(&api, &place.record(&api, &name, None)?.0, told).await
}

/// Blocks a caller, callers with names like this, or an address range
#[utoipa::path(
    put, path = "/admin/v1/blocks/{name}", operation_id = "blocks_put", tag = "blocks",
    params(openapi::OfDomain, openapi::Conditions), request_body = BlockBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(place): Query<Where>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    asked.may(Scope::Emergency)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let block: BlockBody = body::parsed(&sent)?;
    let now = api.now();
    let (name, range) = place.record(&api, &name, block.range)?;
    if !name.domain.is_empty() || !range {
        let rules = api.limiter().rules();
        let domain = names::domain(&rules, Some(&name.domain))?;
        if !range {
            names::has_callers(domain)?;
        }
    }
    let (document, who) = block.document(&name, range, now)?;
    let writing = Writing { asked: &asked, name, action: "block.put", reason: document.reason.clone(), body: &sent };
    let answer = told(&writing.name, &document, now);
    let made = |stored: Option<&Stored>| {
        if stored.is_none() {
            has_room(&api, &who)?;
        }
        Ok(Made::of(&document, answer.clone()))
    };
    records::write(&api, writing, made).await
}

/// Ends a block
#[utoipa::path(
    delete, path = "/admin/v1/blocks/{name}", operation_id = "blocks_delete", tag = "blocks",
    params(openapi::OfDomain, openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(name): Path<String>,
    Query(place): Query<Where>,
) -> Answer {
    asked.may(Scope::Emergency)?;
    let (name, _) = place.record(&api, &name, None)?;
    let answer = json!({"name": name.name, "domain": names::domain_of(&name), "deleted": true});
    records::delete(&api, &asked, name, "block.delete", answer).await
}

impl Where {
    /// The record that is meant, and whether it is of an address range. Ranges are of all domains unless one is named, and have one
    /// name each, however they are written.
    fn record(&self, api: &Api, name: &str, range: Option<bool>) -> Result<(Name, bool), Problem> {
        let network = name.parse::<Network>().ok();
        let said = match &self.range {
            Some(said) => Some(flag("range", Some(said))?),
            None => range,
        };
        let range = said.unwrap_or(network.is_some());
        let domain = match &self.domain {
            Some(domain) => domain.clone(),
            None if range => String::new(),
            None => names::domain(&api.limiter().rules(), None)?.name().to_owned(),
        };
        let network = network.filter(|_| range);
        let name = network.map_or_else(|| name.to_owned(), |network| network.canonical().to_string());
        Ok((Name::new(Kind::Block, domain, name), range))
    }
}

impl BlockBody {
    fn document(self, name: &Name, range: bool, now: Timestamp) -> Result<(BlockDocument, Blocked), Problem> {
        let mut faults = Faults::default();
        let expires_at = Until { expires_at: self.expires_at, lasts: self.r#for.as_deref() }.moment(now, &mut faults);
        let document = BlockDocument {
            range,
            status: self.status.unwrap_or(403),
            shadow: self.shadow,
            expires_at,
            reason: self.reason,
        };
        if self.shadow && self.status.is_some() {
            faults.add("status", "one that is served is told no status; write either `shadow` or `status`");
        }
        let meant = document.meaning(&name.domain, &name.name, &mut faults);
        let meant = faults.unless(meant).map_err(Problem::invalid)?;
        let (who, _) = meant.ok_or_else(|| Problem::invalid(Vec::new()))?;
        Ok((document, who))
    }
}

fn has_room(api: &Api, who: &Blocked) -> Result<(), Problem> {
    let there = api.limiter().tenants().wide();
    match who {
        Blocked::Range { .. } => records::has_room(there.ranges, MOST_RANGES, "blocked ranges"),
        Blocked::Caller { caller, .. } if !matches!(Pattern::new(caller), Pattern::Exact(_)) => {
            records::has_room(there.blocks, MOST_WIDE, "blocks whose names have a *")
        }
        Blocked::Caller { .. } => Ok(()),
    }
}

fn told(name: &Name, document: &BlockDocument, now: Timestamp) -> Value {
    json!({
        "name": name.name,
        "domain": names::domain_of(name),
        "range": document.range,
        "status": (!document.shadow).then_some(document.status),
        "shadow": document.shadow,
        "reason": document.reason,
        "expires_at": document.expires_at,
        "in_force": document.expires_at.is_none_or(|end| end.0 > now),
    })
}
