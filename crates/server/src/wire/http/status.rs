//! `GET /v1/ratelimit/status/{entity}`: how a caller stands. Consumes nothing.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use tollgate::{Counter, RuleName, Standing, Timestamp};
use tollgate_rules::model::Headers;
use utoipa::ToSchema;

use super::Wire;
use super::problem::Problem;

/// How a caller stands.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Status {
    /// Whose rules.
    domain: String,
    /// The attribute that the caller was named by.
    entity: String,
    /// A counter for each rule that is keyed by the caller, and by nothing that was not said.
    limits: Vec<StatusLimit>,
    /// The rules without such a counter, up to a hundred of them.
    left_out: Vec<LeftOut>,
    /// How many rules are not shown to clients.
    hidden: usize,
}

/// One counter.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct StatusLimit {
    /// The rule's name.
    name: String,
    /// Units in a window.
    limit: u64,
    /// What is left now.
    remaining: u64,
    /// Unix seconds at which the quota is back; missing while the store can't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reset_at: Option<u64>,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    window: String,
    /// The most units that can pass at once.
    burst: u64,
    /// How it counts.
    algorithm: String,
    /// `enforce`, `any_of`, `shadow` or `soft`.
    mode: String,
}

/// A rule that is not among the limits.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct LeftOut {
    /// The rule's name.
    name: String,
    /// Why.
    why: String,
}

/// The most rules that are named as left out.
const MOST_LEFT_OUT: usize = 100;

type Parameters = Vec<(String, String)>;

/// How a caller stands
///
/// Every rule whose key has the caller is told: those keyed by it alone, and those whose other attributes are given as query
/// parameters, whatever their names.
#[utoipa::path(
    get, path = "/v1/ratelimit/status/{entity}", operation_id = "status",
    params(
        ("entity" = String, Path, description = "The caller: a value of the domain's `entity`"),
        ("domain" = Option<String>, Query, description = "Whose rules; needed where there are several domains"),
        ("attribute" = Option<String>, Query, description = "The attribute that names the caller, if it is not the domain's `entity`"),
    ),
    responses(
        (status = 200, body = Status),
        (status = 400, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "It can't be decided as it is"),
        (status = 404, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "There is no such domain"),
    )
)]
pub(super) async fn handle(
    State(wire): State<Arc<Wire>>,
    caller: Result<Path<String>, PathRejection>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Json<Status>, Problem> {
    let unreadable = |what: String| Problem::bad_request("bad_query", format!("{what}; percent-encode UTF-8"));
    let Path(caller) = caller.map_err(|error| unreadable(error.body_text()))?;
    let Query(parameters) = parameters.map_err(|error| unreadable(error.body_text()))?;
    let (mut domain, mut entity, mut others) = (None, None, Vec::new());
    for (name, value) in &parameters {
        let is_new = match name.as_str() {
            "domain" => domain.replace(value.as_str()).is_none(),
            "attribute" => entity.replace(value.as_str()).is_none(),
            _ => {
                others.push((name.as_str(), value.as_str()));
                others.iter().filter(|(known, _)| known == name).count() == 1
            }
        };
        if !is_new {
            return Err(Problem::bad_request("bad_query", format!("`{name}` is there twice; send it once")));
        }
    }
    let limiter = wire.gate.limiter();
    match limiter.standing(domain, entity, &caller, &others).await {
        Ok(Some(standing)) => Ok(Json(Status::new(&standing))),
        Ok(None) => Err(Problem::bad_request(
            "no_entity",
            "the domain has no `entity`: give it one in its rules, or say `?attribute=` and the attribute that names callers",
        )),
        Err(error) => Err(Problem::of_request(&error, domain, &limiter.rules())),
    }
}

impl Status {
    fn new(standing: &Standing) -> Status {
        let is_shown = |rule: &RuleName| rule.headers != Headers::Hidden;
        let shown = standing.counters.iter().filter(|(rule, _)| is_shown(rule));
        let left_out = standing.left_out.iter().filter(|(rule, _)| is_shown(rule)).take(MOST_LEFT_OUT);
        let rules =
            standing.counters.iter().map(|(rule, _)| rule).chain(standing.left_out.iter().map(|(rule, _)| rule));
        Status {
            domain: standing.domain.clone(),
            entity: standing.entity.clone(),
            limits: shown.map(|(rule, counter)| StatusLimit::new(rule, counter, standing.at)).collect(),
            left_out: left_out.map(|(rule, why)| LeftOut { name: rule.name.clone(), why: why.clone() }).collect(),
            hidden: rules.filter(|rule| !is_shown(rule)).count(),
        }
    }
}

impl StatusLimit {
    fn new(rule: &RuleName, counter: &Counter, at: Timestamp) -> StatusLimit {
        StatusLimit {
            name: rule.name.clone(),
            limit: counter.limit.amount(),
            remaining: counter.reading.remaining,
            reset_at: tollgate::told::reset_at(&counter.reading, at),
            window: tollgate::told::window(&counter.limit).into_owned(),
            burst: counter.limit.quota(),
            algorithm: crate::words::algorithm(counter.limit.algorithm()).to_owned(),
            mode: crate::words::mode(counter.mode).to_owned(),
        }
    }
}
