//! `POST /v1/ratelimit/explain`: what every rule makes of a request. For operators: it shows hidden rules too.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate::{Counter, ExplainedRule, Explanation, Fate, Limiter, Mode};
use utoipa::ToSchema;

use super::asked::Asked;
use super::problem::Problem;
use super::{Wire, body};
use crate::counters::Counters;

/// What every rule makes of a request. Nothing was consumed.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Explained {
    /// Whose rules.
    domain: String,
    /// What the request costs.
    cost: u64,
    /// Whether it would pass now.
    allowed: bool,
    /// The rules of the domain, in their order: all that apply, and the others up to a thousand.
    rules: Vec<ToldRule>,
    /// How many others there are.
    more: usize,
}

/// What one rule makes of it.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ToldRule {
    /// Its name.
    name: String,
    /// `applies`, `unlimited` or `misses`.
    fate: String,
    /// Why it does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<String>,
    /// The counters that the request would be charged on.
    counters: Vec<ToldCounter>,
}

/// One counter as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ToldCounter {
    /// The values that name it.
    key: Vec<String>,
    /// Units in a window.
    limit: u64,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    window: String,
    /// How it counts.
    algorithm: String,
    /// `enforce`, `any_of`, `shadow` or `soft`.
    mode: String,
    /// What the request would take.
    units: u64,
    /// What is left now.
    remaining: u64,
    /// Whether there is room for the request.
    has_room: bool,
}

/// The most rules that are told although they do not apply.
const MOST_MISSES: usize = 1_000;

/// What does every rule make of this request?
///
/// For operators: rules that clients are not shown are told too. Nothing is consumed.
#[utoipa::path(
    post, path = "/v1/ratelimit/explain", operation_id = "explain", request_body = super::openapi::CheckBody,
    responses(
        (status = 200, body = Explained),
        (status = 400, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "It can't be read, or can't be decided as it is"),
        (status = 404, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "There is no such domain"),
        (status = 408, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 413, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 64 KiB"),
    )
)]
pub(super) async fn handle(State(wire): State<Arc<Wire>>, body: axum::body::Body) -> Result<Json<Explained>, Problem> {
    explained(wire.gate.limiter(), body, wire.times.body).await
}

/// The same on another listener: what this limiter makes of a body that arrives within that time.
pub(crate) async fn answer(limiter: &Limiter<Counters>, body: axum::body::Body, within: Duration) -> Response {
    explained(limiter, body, within).await.into_response()
}

async fn explained(
    limiter: &Limiter<Counters>,
    body: axum::body::Body,
    within: Duration,
) -> Result<Json<Explained>, Problem> {
    let bytes = body::whole(body, within).await?;
    let asked = Asked::read(&bytes)?;
    let (pairs, _) = asked.pairs()?;
    let descriptors = asked.descriptors(&pairs);
    let request = asked.request(&descriptors);
    match limiter.explain(&request).await {
        Ok(explanation) => Ok(Json(Explained::new(explanation, asked.cost))),
        Err(error) => Err(Problem::of_request(&error, request.domain, &limiter.rules())),
    }
}

impl Explained {
    fn new(explanation: Explanation, cost: u64) -> Explained {
        let counters = || explanation.rules.iter().flat_map(|rule| &rule.counters);
        let enforced = |mode| counters().filter(move |counter| counter.mode == mode);
        let misses = |rule: &ExplainedRule| matches!(rule.fate, Fate::Misses(_));
        let mut missed = 0;
        let told = explanation.rules.iter().filter(|rule| {
            missed += usize::from(misses(rule));
            !misses(rule) || missed <= MOST_MISSES
        });
        let any_of = enforced(Mode::AnyOf).next().is_none() || enforced(Mode::AnyOf).any(Counter::has_room);
        Explained {
            allowed: any_of && enforced(Mode::Enforce).all(Counter::has_room),
            cost,
            more: explanation.rules.iter().filter(|rule| misses(rule)).count().saturating_sub(MOST_MISSES),
            rules: told.map(ToldRule::new).collect(),
            domain: explanation.domain,
        }
    }
}

impl ToldRule {
    fn new(rule: &ExplainedRule) -> ToldRule {
        let (fate, why) = match &rule.fate {
            Fate::Applies => ("applies", None),
            Fate::Unlimited => ("unlimited", None),
            Fate::Misses(why) => ("misses", Some(why.clone())),
        };
        ToldRule {
            name: rule.name.clone(),
            fate: fate.to_owned(),
            why,
            counters: rule.counters.iter().map(ToldCounter::new).collect(),
        }
    }
}

impl ToldCounter {
    fn new(counter: &Counter) -> ToldCounter {
        ToldCounter {
            key: counter.key.clone(),
            limit: counter.limit.amount(),
            window: tollgate::told::window(&counter.limit).into_owned(),
            algorithm: crate::words::algorithm(counter.limit.algorithm()).to_owned(),
            mode: crate::words::mode(counter.mode).to_owned(),
            units: counter.units,
            remaining: counter.reading.remaining,
            has_room: counter.has_room(),
        }
    }
}
