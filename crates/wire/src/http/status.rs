//! `GET /v1/ratelimit/status/{entity}`: the state of a caller's counters. Consumes nothing.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use http::StatusCode;
use serde::Serialize;
use tollgate::{CallerCounters, CounterStatus, Counters, Limiter, RuleName, Timestamp};
use tollgate_http::problem::Problem;
use tollgate_rules::model::Headers;
use utoipa::ToSchema;

use super::HttpState;
use super::problem::{self, ProblemResponse};

/// The state of a caller's counters.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct StatusBody {
    /// The domain of the rules.
    domain: String,
    /// The attribute that names the caller.
    entity: String,
    /// The counters of the rules that are keyed by the caller and the other attributes of the query.
    limits: Vec<StatusLimit>,
    /// The rules without such a counter, up to a hundred.
    left_out: Vec<OmittedRule>,
    /// How many rules are hidden from clients.
    hidden: usize,
}

/// The state of one counter.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct StatusLimit {
    /// The rule's name.
    name: String,
    /// Units per window.
    limit: u64,
    /// How many units are left.
    remaining: u64,
    /// When the quota is replenished, in Unix seconds; missing while the store is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reset_at: Option<u64>,
    /// If nothing is left: the seconds after which there is room again, if the caller sends nothing meanwhile; mostly there
    /// is some before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after: Option<u64>,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    window: String,
    /// The largest number of units that can pass at once.
    burst: u64,
    /// The algorithm of the limit.
    algorithm: String,
    /// `enforce`, `any_of`, `shadow` or `soft`.
    mode: String,
    /// The region that owns the counter, if one of them does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    region: Option<String>,
}

/// A rule without a counter.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct OmittedRule {
    /// The rule's name.
    name: String,
    /// Why it has none.
    why: String,
}

/// The largest number of omitted rules that are listed.
const MAX_OMITTED: usize = 100;

type QueryParameters = Vec<(String, String)>;

/// Read a caller's counters
///
/// Includes every rule that is keyed by the caller alone, or by the caller and attributes that are query parameters,
/// whatever their names.
#[utoipa::path(
    get, path = "/v1/ratelimit/status/{entity}", operation_id = "status",
    params(
        ("entity" = String, Path, description = "The caller: a value of the domain's `entity`"),
        ("domain" = Option<String>, Query, description = "The domain of the rules; required if there are several"),
        ("attribute" = Option<String>, Query, description = "The attribute that names the caller, if it is not the domain's `entity`"),
    ),
    responses(
        (status = 200, body = StatusBody),
        (status = 400, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The request is invalid"),
        (status = 404, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The domain is unknown"),
    )
)]
pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    caller: Result<Path<String>, PathRejection>,
    parameters: Result<Query<QueryParameters>, QueryRejection>,
) -> Result<Json<StatusBody>, ProblemResponse> {
    let invalid = |what: String| Problem::bad_request("bad_query", format!("{what}; percent-encode UTF-8"));
    let Path(caller) = caller.map_err(|error| invalid(error.body_text()))?;
    let Query(parameters) = parameters.map_err(|error| invalid(error.body_text()))?;
    let (mut domain, mut entity, mut others) = (None, None, Vec::new());
    for (name, value) in &parameters {
        let is_new = match name.as_str() {
            "domain" => domain.replace(value.as_str()).is_none(),
            "attribute" => entity.replace(value.as_str()).is_none(),
            _ => {
                others.push((name.as_str(), value.as_str()));
                others.iter().filter(|(other, _)| other == name).count() == 1
            }
        };
        if !is_new {
            return Err(Problem::bad_request("bad_query", format!("`{name}` occurs twice; send it once")).into());
        }
    }
    let limiter = state.gate.limiter();
    match limiter.peek(domain, entity, &caller, &others).await {
        Ok(Some(counters)) => Ok(Json(StatusBody::new(&counters))),
        Ok(None) => Err(Problem::bad_request(
            "no_entity",
            "the domain has no `entity`: set one in its rules, or name the caller's attribute with `?attribute=`",
        )
        .into()),
        Err(error) => Err(problem::invalid_request(&error, domain, &limiter.rules()).into()),
    }
}

/// The state of the counters of the caller that has these attributes, as JSON. `None` if none of them names the caller: the
/// attribute that does is the domain's `entity`.
///
/// # Errors
/// If the domain is unknown, or has no `entity`.
pub async fn caller_limits(
    limiter: &Limiter<Counters>,
    domain: Option<&str>,
    attributes: &[(&str, &str)],
) -> Result<Option<Vec<u8>>, Problem> {
    let rules = limiter.rules();
    let number = rules.domain_number(domain);
    let entity = number.and_then(|number| rules.domains().get(number)?.entity());
    let Some(entity) = entity else {
        let detail = "the rules have no such domain, or it has no `entity`";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_entity", detail));
    };
    let Some((_, caller)) = attributes.iter().find(|(name, _)| *name == entity) else { return Ok(None) };
    let others: Vec<(&str, &str)> = attributes.iter().filter(|(name, _)| *name != entity).copied().collect();
    match limiter.peek(domain, None, caller, &others).await {
        Ok(Some(counters)) => Ok(Some(serde_json::to_vec(&StatusBody::new(&counters)).unwrap_or_default())),
        Ok(None) => Ok(None),
        Err(error) => Err(problem::invalid_request(&error, domain, &rules)),
    }
}

impl StatusBody {
    fn new(caller: &CallerCounters) -> StatusBody {
        let is_shown = |rule: &RuleName| rule.headers != Headers::Hidden;
        let shown = caller.counters.iter().filter(|(rule, _)| is_shown(rule));
        let left_out = caller.left_out.iter().filter(|(rule, _)| is_shown(rule)).take(MAX_OMITTED);
        let rules = caller.counters.iter().map(|(rule, _)| rule).chain(caller.left_out.iter().map(|(rule, _)| rule));
        StatusBody {
            domain: caller.domain.clone(),
            entity: caller.entity.clone(),
            limits: shown.map(|(rule, counter)| StatusLimit::new(rule, counter, caller.at)).collect(),
            left_out: left_out.map(|(rule, why)| OmittedRule { name: rule.name.clone(), why: why.clone() }).collect(),
            hidden: rules.filter(|rule| !is_shown(rule)).count(),
        }
    }
}

impl StatusLimit {
    fn new(rule: &RuleName, counter: &CounterStatus, at: Timestamp) -> StatusLimit {
        let reset_at = tollgate_http::response::reset_at(&counter.reading, at);
        let wait = counter.reading.reset_after.as_micros().div_ceil(1_000_000).max(1);
        StatusLimit {
            name: rule.name.clone(),
            limit: counter.limit.quota(),
            remaining: counter.reading.remaining,
            reset_at,
            retry_after: reset_at.filter(|_| counter.reading.remaining == 0).map(|_| wait),
            window: tollgate_http::response::window(&counter.limit).into_owned(),
            burst: counter.limit.quota(),
            algorithm: counter.limit.algorithm().name().to_owned(),
            mode: counter.mode.name().to_owned(),
            region: counter.region.clone(),
        }
    }
}
