//! The sinks that events are sent to: how they fare, and tests of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate_events::{EventSeverity, EventType, SinkError, SinkStatus};
use tollgate_records::Rfc3339;

use super::{AdminState, seconds};
use crate::api::extract::PathParams;
use crate::api::{ApiProblem, ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// List the sinks of events
///
/// Those of the file that `--events` names, as they fare on this server: `state` is `ok`, `failing` (events wait) or `gone` (the
/// receiver answered 410). Counts are since the start of the server.
#[utoipa::path(
    get, path = "/admin/v1/events/sinks", operation_id = "event_sinks", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn list(State(state): State<Arc<AdminState>>, context: RequestContext) -> ApiResult {
    context.require(AccessScope::Read)?;
    let sinks = state.sinks.status(state.control.now());
    let items: Vec<_> = sinks.iter().map(to_json).collect();
    Ok(Json(json!({"items": items})).into_response())
}

/// Send a test event to a sink
///
/// At once, ahead of the events that wait. `result` is `taken` or `failed`, with `error`. A sink whose receiver had answered 410 goes on
/// if it takes the test.
#[utoipa::path(
    post, path = "/admin/v1/events/sinks/{name}/test", operation_id = "event_sinks_test", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn test(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
) -> ApiResult {
    context.require(AccessScope::Emergency)?;
    let Some(sink) = state.sinks.find(&name) else {
        return Err(ApiProblem::not_found(
            "unknown_sink",
            format!("there is no sink {name:?}: GET /admin/v1/events/sinks lists all"),
        ));
    };
    let by = &context.principal.name;
    let stream = state.observability.sampler.events.stream();
    let text = format!("a test of the sink {name} by {by}");
    let event = stream.event(state.control.now(), EventType::Test, EventSeverity::Info, text);
    let error = match sink.try_out(&event).await {
        Ok(()) => return Ok(Json(json!({"result": "taken", "id": event.id})).into_response()),
        Err(SinkError::Retry { why, .. } | SinkError::Permanent(why)) => why,
        Err(SinkError::Gone) => "the receiver takes no more events (410)".to_owned(),
    };
    Ok(Json(json!({"result": "failed", "id": event.id, "error": error})).into_response())
}

fn to_json(sink: &SinkStatus) -> Value {
    let state = match sink {
        SinkStatus { is_gone: true, .. } => "gone",
        SinkStatus { failures: 1.., .. } => "failing",
        _ => "ok",
    };
    json!({
        "name": sink.name,
        "kind": sink.kind,
        "host": sink.host,
        "state": state,
        "waiting": sink.waiting,
        "oldest_seconds": sink.oldest.map(seconds),
        "failures": sink.failures,
        "next_attempt_at": sink.due.map(Rfc3339),
        "delivered_at": sink.delivered_at.map(Rfc3339),
        "error": sink.error,
        "delivered": sink.counts.ok,
        "retried": sink.counts.retry,
        "dropped": sink.counts.dropped,
    })
}
