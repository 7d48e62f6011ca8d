//! Blocks: callers and address ranges that are rejected.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::tenants::{BlockSubject, MAX_WILDCARDS};
use tollgate_control::{RecordFilter, RecordName, StoredRecord};
use tollgate_records::documents::{BlockDocument, FieldFaults};
use tollgate_records::{FieldFault, RecordKind, Rfc3339};
use tollgate_rules::model::Network;
use tollgate_rules::pattern::Pattern;
use tollgate_rules::{quoted, resembles_address};

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::expiry::Expiry;
use super::extract::{PathParams, Query, flag};
use super::records::{self, PreparedWrite, RecordWrite};
use super::{Api, ApiProblem, ApiResult, RequestContext, WriteResult, names};
use crate::scopes::AccessScope;

/// Selects blocks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockListQuery {
    domain: Option<String>,
    name: Option<String>,
    prefix: Option<String>,
    bans: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// The domain of a block, and whether its name is an address range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockTarget {
    domain: Option<String>,
    range: Option<String>,
}

/// A block.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockBody {
    /// Whether the name is an address range; by default if it is one. A name that looks like one, and is none, needs `false`.
    range: Option<bool>,
    /// The status of refusals: 403 (the default) or 429.
    status: Option<u16>,
    /// Serve requests, marked for the gateway.
    #[serde(default)]
    shadow: bool,
    /// Why the block exists.
    #[serde(default)]
    reason: String,
    /// When the block ends; never by default.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    /// Or how long it lasts: `1h`.
    r#for: Option<String>,
}

/// Address ranges: all are copied when one changes.
pub(crate) const MAX_RANGES: usize = 10_000;

/// List blocks
#[utoipa::path(
    get, path = "/admin/v1/blocks", operation_id = "blocks_list", tag = "blocks",
    params(
        description::Listing,
        ("name" = Option<String>, Query, description = "Only this name; the scope `read` is enough"),
        ("prefix" = Option<String>, Query, description = "Only names with this prefix"),
        ("bans" = Option<bool>, Query, description = "Only bans: blocks that servers began")
    ),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<BlockListQuery>,
) -> ApiResult {
    context.require_list_of(query.name.as_deref(), AccessScope::Emergency)?;
    let only_bans = flag("bans", query.bans.as_deref())?;
    let filter = RecordFilter {
        domain: query.domain,
        name: query.name,
        prefix: query.prefix,
        has: only_bans.then(|| "ban".to_owned()),
        ..RecordFilter::new(RecordKind::Block)
    };
    records::list(&api, &filter, query.after.as_deref(), query.limit, to_json).await
}

/// Show a block
#[utoipa::path(
    get, path = "/admin/v1/blocks/{name}", operation_id = "blocks_show", tag = "blocks", params(description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(target): Query<BlockTarget>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    records::show(&api, &target.record(&api, &name, None)?.0, to_json).await
}

/// Block a caller, callers that match a glob, or an address range
#[utoipa::path(
    put, path = "/admin/v1/blocks/{name}", operation_id = "blocks_put", tag = "blocks",
    params(description::OfDomain, description::Conditions), request_body = BlockBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn put(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(target): Query<BlockTarget>,
    sent: RequestBody,
) -> WriteResult {
    context.require(AccessScope::Emergency)?;
    let sent = sent.read_new(&api, &context).await?;
    let block: BlockBody = body::parse(&sent)?;
    let now = api.now();
    let (name, range) = target.record(&api, &name, block.range)?;
    if !range && !target.is_caller(block.range)? && resembles_address(&name.name) {
        return Err(malformed_range(&name.name).into());
    }
    if !name.domain.is_empty() || !range {
        let rules = api.limiter().rules();
        let domain = names::domain(&rules, Some(&name.domain))?;
        if !range {
            names::has_callers(domain)?;
        }
    }
    let (document, who) = block.document(&name, range, now)?;
    let writing =
        RecordWrite { context: &context, name, action: "block.put", reason: document.reason.clone(), body: &sent };
    let answer = to_json(&writing.name, &document, now);
    let prepare = |stored: Option<&StoredRecord>| {
        if stored.is_none() {
            check_room(&api, &who)?;
        }
        Ok(PreparedWrite::new(&document, answer.clone()))
    };
    records::write(&api, writing, prepare).await.map_err(Into::into)
}

/// Delete a block
#[utoipa::path(
    delete, path = "/admin/v1/blocks/{name}", operation_id = "blocks_delete", tag = "blocks",
    params(description::OfDomain, description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn delete(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    Query(target): Query<BlockTarget>,
) -> ApiResult {
    context.require(AccessScope::Emergency)?;
    let (name, _) = target.record(&api, &name, None)?;
    let answer = json!({"name": name.name, "domain": names::domain_of(&name), "deleted": true});
    let deleted = records::delete(&api, &context, name.clone(), "block.delete", answer).await?;
    api.note_ended(name);
    Ok(deleted)
}

/// A block of it would block nobody, since no caller has such a name.
fn malformed_range(name: &str) -> ApiProblem {
    let what = format!(
        "{} looks like an address or a network, and is none; write for instance 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32, \
         or say \"range\": false if it is the name of a caller",
        quoted(name)
    );
    ApiProblem::invalid(vec![FieldFault { at: "range".to_owned(), what }])
}

impl BlockTarget {
    /// Whether the request says that the name is that of a caller.
    fn is_caller(&self, range: Option<bool>) -> Result<bool, ApiProblem> {
        let explicit = self.range.as_deref().map(|range| flag("range", Some(range))).transpose()?;
        Ok(explicit.or(range) == Some(false))
    }

    /// The record, and whether it is an address range. Ranges apply to all domains unless one is given, and are
    /// normalized.
    fn record(&self, api: &Api, name: &str, range: Option<bool>) -> Result<(RecordName, bool), ApiProblem> {
        let network = name.parse::<Network>().ok();
        let explicit = match &self.range {
            Some(explicit) => Some(flag("range", Some(explicit))?),
            None => range,
        };
        let range = explicit.unwrap_or(network.is_some());
        let domain = match &self.domain {
            Some(domain) => domain.clone(),
            None if range => String::new(),
            None => names::domain(&api.limiter().rules(), None)?.name().to_owned(),
        };
        let network = network.filter(|_| range);
        let name = network.map_or_else(|| name.to_owned(), |network| network.canonical().to_string());
        Ok((RecordName::new(RecordKind::Block, domain, name), range))
    }
}

impl BlockBody {
    fn document(
        self,
        name: &RecordName,
        range: bool,
        now: Timestamp,
    ) -> Result<(BlockDocument, BlockSubject), ApiProblem> {
        let mut faults = FieldFaults::default();
        let expires_at = Expiry { expires_at: self.expires_at, lasts: self.r#for.as_deref() }.moment(now, &mut faults);
        let document = BlockDocument {
            range,
            status: self.status.unwrap_or(403),
            shadow: self.shadow,
            expires_at,
            reason: self.reason,
            masked: false,
            ban: None,
        };
        if self.shadow && self.status.is_some() {
            faults.add("status", "set either `shadow` or `status`: in shadow mode requests are served");
        }
        let meaning = document.to_block(&name.domain, &name.name, &mut faults);
        let meaning = faults.into_result(meaning).map_err(ApiProblem::invalid)?;
        let (who, _) = meaning.ok_or_else(|| ApiProblem::invalid(Vec::new()))?;
        Ok((document, who))
    }
}

fn check_room(api: &Api, who: &BlockSubject) -> Result<(), ApiProblem> {
    let counts = api.limiter().tenants().wildcard_counts();
    match who {
        BlockSubject::Range { .. } => records::check_capacity(counts.ranges, MAX_RANGES, "blocked ranges"),
        BlockSubject::Caller { caller, .. } if !matches!(Pattern::new(caller), Pattern::Exact(_)) => {
            records::check_capacity(counts.blocks, MAX_WILDCARDS, "blocks whose names have a *")
        }
        BlockSubject::Caller { .. } | BlockSubject::Masked { .. } => Ok(()),
    }
}

fn to_json(name: &RecordName, document: &BlockDocument, now: Timestamp) -> Value {
    let mut answer = json!({
        "name": name.name,
        "domain": names::domain_of(name),
        "range": document.range,
        "status": (!document.shadow).then_some(document.status),
        "shadow": document.shadow,
        "reason": document.reason,
        "expires_at": document.expires_at,
        "in_force": document.expires_at.is_none_or(|end| end.0 > now),
    });
    if let Some(ban) = &document.ban {
        answer["ban"] = json!({
            (if ban.signal { "signal" } else { "rule" }): ban.rule,
            "after": ban.after,
            "within": ban.within,
            "began_at": ban.began_at,
            "number": ban.number,
        });
    }
    answer
}
