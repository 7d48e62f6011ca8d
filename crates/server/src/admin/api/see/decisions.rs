//! Why was I limited? What was decided about one caller, and why.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate::control::Moment;
use tollgate_control::DecidedFilter;
use tollgate_observe::{Share, cut};

use super::See;
use crate::admin::api::extract::Query;
use crate::admin::api::{Answer, Asked, Problem, openapi, records};
use crate::admin::who::Scope;
use crate::decisions::{Line, NotLogged, Wanted};

/// Which decisions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    caller: String,
    domain: Option<String>,
    rule: Option<String>,
    from: Option<Moment>,
    to: Option<Moment>,
    limit: Option<usize>,
}

/// A decision as it is told.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    line: Line,
    why: String,
}

/// What was decided about a caller, and why: all refusals, and a sample of the rest
#[utoipa::path(
    get, path = "/admin/v1/decisions", operation_id = "decisions", tag = "seeing",
    params(
        ("caller" = String, Query, description = "The value of the domain's `entity`"),
        ("domain" = Option<String>, Query), ("rule" = Option<String>, Query, description = "The rule that decided"),
        ("from" = Option<String>, Query, description = "At this moment or later"),
        ("to" = Option<String>, Query, description = "Before this moment"),
        ("limit" = Option<u64>, Query, description = "The newest so many: 1 to 1000, 100 by default")
    ),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(State(see): State<Arc<See>>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Audit)?;
    let decisions = &see.sight.decisions;
    let most = records::most(listed.limit)?;
    let (from, to) = (listed.from.map(|at| at.0), listed.to.map(|at| at.0));
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err(Problem::bad_request("bad_query", "from must be before to"));
    }
    let Some(place) = decisions.place() else {
        let detail = "no decisions are logged: this server runs with decision_log: off";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "decision_log_off", detail));
    };
    // As it is logged.
    let caller = cut(&listed.caller);
    let filter = DecidedFilter { caller, domain: listed.domain, rule: listed.rule, from, to };
    let found = decisions.find(&Wanted { filter, most }).await.map_err(away)?;
    let told: Vec<_> = found.into_iter().map(|line| Told { why: line.why(), line }).collect();
    let (sample, callers) = decisions.shares();
    let share = |share: Share| f64::from(share.parts()) / f64::from(Share::ALL.parts());
    Ok(Json(json!({
        "caller": listed.caller,
        "dropped": decisions.counts().dropped,
        "log": {
            "place": place,
            "keep_seconds": decisions.keep().as_micros() as f64 / 1e6,
            "sample": share(sample),
            "callers": share(callers),
        },
        "decisions": told,
    }))
    .into_response())
}

fn away(why: NotLogged) -> Problem {
    match why {
        NotLogged::Never(what) => Problem::bad_request("bad_query", what),
        NotLogged::Yet(what) => {
            let detail = format!("the decision log can't be read: {what}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "decision_log_away", detail)
        }
    }
}
