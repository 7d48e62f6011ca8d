//! Usage of quotas.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tollgate::{Algorithm, Limit, Timestamp};
use tollgate_records::Rfc3339;

use super::extract::{DomainQuery, PathParams, Query};
use super::{Api, ApiProblem, ApiResult, RequestContext, names};
use crate::scopes::AccessScope;

/// Show how much of its quotas a caller has used
#[utoipa::path(
    get, path = "/admin/v1/usage/{caller}", operation_id = "usage_show", tag = "quotas",
    params(super::description::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(caller): PathParams<String>,
    Query(query): Query<DomainQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?;
    let peeked = api.limiter().peek(Some(domain.name()), None, &caller, &[]).await;
    let peeked = peeked.map_err(|error| ApiProblem::bad_request("bad_request", error.to_string()))?;
    let peeked = peeked.ok_or_else(|| ApiProblem::bad_request("no_entity", "the domain has no `entity`"))?;
    let mut usage = Map::new();
    let mut window = None;
    for (name, counter) in &peeked.counters {
        let Some(rule) = domain.rules().iter().find(|rule| rule.name() == name.name) else { continue };
        let display_name = names::display_name(domain, rule);
        if display_name == "default" {
            window = Some(current_window(&counter.limit, peeked.at));
        }
        let (amount, remaining) = (counter.limit.amount(), counter.reading.remaining);
        let mut one = json!({
            "used": counter.used,
            "limit": amount,
            // The capacity of a bucket may differ from its amount per period.
            "burst": counter.limit.quota(),
            "remaining": remaining,
            "rule": name.name,
            "resolved_by": counter.by.name(),
            "source": counter.reading.source.name(),
        });
        super::counters::add_region(&mut one, counter.region.as_deref());
        usage.insert(display_name, one);
    }
    let answer = json!({
        "api_key": caller,
        "domain": domain.name(),
        "tier": names::caller_tier(peeked.tier.as_ref()),
        // The attribute with which requests name the tier.
        "tier_from": domain.tier_attribute(),
        "left_out": super::counters::skipped_json(peeked.left_out.iter()),
        "current_window": window,
        "usage": Value::Object(usage),
    });
    Ok(Json(answer).into_response())
}

/// The current window of a limit. For a bucket it is the last period.
fn current_window(limit: &Limit, now: Timestamp) -> Value {
    let (start, end) = match limit.algorithm() {
        Algorithm::Bucket { .. } | Algorithm::SlidingLog | Algorithm::Concurrency => {
            (now.before(limit.period().span()), now)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => limit.period().bounds(now),
    };
    json!({"start": Rfc3339(start), "end": Rfc3339(end)})
}
