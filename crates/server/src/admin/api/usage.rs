//! How much of its quotas a caller has used.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tollgate::control::Moment;
use tollgate::{Algorithm, Limit, Timestamp};

use super::extract::{InDomain, Path, Query};
use super::{Answer, Api, Asked, Problem, names};
use crate::admin::who::Scope;

/// How much of its quotas a caller has used
#[utoipa::path(
    get, path = "/admin/v1/usage/{caller}", operation_id = "usage_show", tag = "quotas",
    params(super::openapi::OfDomain),
    responses((status = 200, body = Object), (status = "default", response = super::openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(caller): Path<String>,
    Query(named): Query<InDomain>,
) -> Answer {
    asked.may(Scope::Read)?;
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, named.domain.as_deref())?;
    let standing = api.limiter().standing(Some(domain.name()), None, &caller, &[]).await;
    let standing = standing.map_err(|error| Problem::bad_request("bad_request", error.to_string()))?;
    let standing =
        standing.ok_or_else(|| Problem::bad_request("no_entity", "the domain does not say who a caller is"))?;
    let mut usage = Map::new();
    let mut window = None;
    for (name, counter) in &standing.counters {
        let Some(rule) = domain.rules().iter().find(|rule| rule.name() == name.name) else { continue };
        let called = names::called(domain, rule);
        if called == "default" {
            window = Some(current_window(&counter.limit, standing.at));
        }
        let (amount, remaining) = (counter.limit.amount(), counter.reading.remaining);
        let one = json!({
            // What a bucket holds when it is full may be more than it gets in a period.
            "used": counter.limit.quota().saturating_sub(remaining),
            "limit": amount,
            "remaining": remaining,
            "rule": name.name,
            "resolved_by": counter.by.name(),
            "source": counter.reading.source.name(),
        });
        usage.insert(called, one);
    }
    let answer = json!({
        "api_key": caller,
        "domain": domain.name(),
        "current_window": window,
        "usage": Value::Object(usage),
    });
    Ok(Json(answer).into_response())
}

/// The window that a limit counts in now. A bucket has none: the last period stands for it.
fn current_window(limit: &Limit, now: Timestamp) -> Value {
    let (start, end) = match limit.algorithm() {
        Algorithm::Bucket { .. } | Algorithm::SlidingLog | Algorithm::Concurrency => {
            (now.before(limit.period().span()), now)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => limit.period().bounds(now),
    };
    json!({"start": Moment(start), "end": Moment(end)})
}
