//! `POST /v1/ratelimit/explain`: the effect of every rule on a request. For operators: it includes hidden rules.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate::{Algorithm, CounterStatus, ExplainedRule, Explanation, Limiter, Mode, RuleMatch};
use utoipa::ToSchema;

use super::HttpState;
use super::check_request::CheckRequest;
use super::problem::{self, ProblemResponse};
use crate::body;
use tollgate_http::request_target::PathNormalization;
use tollgate_store::Counters;
use tollgate_telemetry::metrics::Repairs;

/// The effect of every rule on a request. Explaining consumes nothing.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ExplainBody {
    /// The domain of the rules.
    domain: String,
    /// The cost of the request.
    cost: u64,
    /// Whether the request would pass now.
    allowed: bool,
    /// The rules of the domain, in order: all that apply, and up to a thousand others.
    rules: Vec<ExplainedRuleBody>,
    /// How many further rules do not apply.
    more: usize,
}

/// The effect of one rule.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ExplainedRuleBody {
    /// The rule's name.
    name: String,
    /// `applies`, `unlimited` or `misses`.
    fate: String,
    /// Why the rule does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<String>,
    /// What its limits mean in several regions, as the rule file has it; absent if each region counts by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    region: Option<String>,
    /// The counters that the request would charge.
    counters: Vec<ExplainedCounterBody>,
}

/// The state of one counter.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ExplainedCounterBody {
    /// The values that name the counter.
    key: Vec<String>,
    /// Units per window.
    limit: u64,
    /// The most units that a bucket gives out at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    burst: Option<u64>,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    window: String,
    /// The algorithm of the limit.
    algorithm: String,
    /// `enforce`, `any_of`, `shadow` or `soft`.
    mode: String,
    /// How many units the request would take.
    units: u64,
    /// How many units are left.
    remaining: u64,
    /// Whether there is room for the request.
    has_room: bool,
    /// The region that owns the counter, for a rule with `region: home`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    region: Option<String>,
}

/// The largest number of rules that are listed although they do not apply.
const MAX_MISSES: usize = 1_000;

/// Explain a request
///
/// The effect of every rule on a request, including rules that are hidden from clients. Consumes nothing.
#[utoipa::path(
    post, path = "/v1/ratelimit/explain", operation_id = "explain", request_body = super::description::CheckBody,
    responses(
        (status = 200, body = ExplainBody),
        (status = 400, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The request is invalid"),
        (status = 404, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The domain is unknown"),
        (status = 408, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 413, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 512 KiB"),
    )
)]
pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    body: axum::body::Body,
) -> Result<Json<ExplainBody>, ProblemResponse> {
    explain(state.gate.limiter(), body, state.timeouts.body, state.normalization).await
}

/// The same on another listener, with the default normalization of paths. The body must arrive within the timeout.
pub async fn respond(limiter: &Limiter<Counters>, body: axum::body::Body, timeout: Duration) -> Response {
    explain(limiter, body, timeout, PathNormalization::default()).await.into_response()
}

async fn explain(
    limiter: &Limiter<Counters>,
    body: axum::body::Body,
    timeout: Duration,
    normalization: PathNormalization,
) -> Result<Json<ExplainBody>, ProblemResponse> {
    let bytes = body::collect(body, timeout).await?;
    let mut parsed = CheckRequest::parse(&bytes)?;
    // What can't be repaired is reported below.
    let _ = parsed.repair(normalization, limiter, &mut Repairs::default());
    let (pairs, _) = parsed.pairs()?;
    let descriptors = parsed.descriptors(&pairs);
    let request = parsed.request(&descriptors);
    match limiter.explain(&request).await {
        Ok(explanation) => Ok(Json(ExplainBody::new(explanation, parsed.cost))),
        Err(error) => Err(problem::invalid_request(&error, request.domain, &limiter.rules()).into()),
    }
}

impl ExplainBody {
    fn new(explanation: Explanation, cost: u64) -> ExplainBody {
        let counters = || explanation.rules.iter().flat_map(|rule| &rule.counters);
        let enforced = |mode| counters().filter(move |counter| counter.mode == mode);
        let misses = |rule: &ExplainedRule| matches!(rule.fate, RuleMatch::Misses(_));
        let mut missed = 0;
        let shown = explanation.rules.iter().filter(|rule| {
            missed += usize::from(misses(rule));
            !misses(rule) || missed <= MAX_MISSES
        });
        let any_of = enforced(Mode::AnyOf).next().is_none() || enforced(Mode::AnyOf).any(CounterStatus::has_room);
        ExplainBody {
            allowed: any_of && enforced(Mode::Enforce).all(CounterStatus::has_room),
            cost,
            more: explanation.rules.iter().filter(|rule| misses(rule)).count().saturating_sub(MAX_MISSES),
            rules: shown.map(ExplainedRuleBody::new).collect(),
            domain: explanation.domain,
        }
    }
}

impl ExplainedRuleBody {
    fn new(rule: &ExplainedRule) -> ExplainedRuleBody {
        let (fate, why) = match &rule.fate {
            RuleMatch::Applies => ("applies", None),
            RuleMatch::Unlimited => ("unlimited", None),
            RuleMatch::Misses(why) => ("misses", Some(why.clone())),
        };
        ExplainedRuleBody {
            name: rule.name.clone(),
            fate: fate.to_owned(),
            why,
            region: rule.region.clone(),
            counters: rule.counters.iter().map(ExplainedCounterBody::new).collect(),
        }
    }
}

impl ExplainedCounterBody {
    fn new(counter: &CounterStatus) -> ExplainedCounterBody {
        ExplainedCounterBody {
            key: counter.key.clone(),
            limit: counter.limit.amount(),
            burst: match counter.limit.algorithm() {
                Algorithm::Bucket { burst, .. } => Some(burst),
                _ => None,
            },
            window: tollgate_http::response::period(&counter.limit).into_owned(),
            algorithm: counter.limit.algorithm().name().to_owned(),
            mode: counter.mode.name().to_owned(),
            units: counter.units,
            remaining: counter.reading.remaining,
            has_room: counter.has_room(),
            region: counter.region.clone(),
        }
    }
}
