//! The gateway of this server, and the switch of its shedders.
//!
//! The switch is meant for incidents, so it does not wait for the store of record. Nothing is stored: after a restart, and for
//! a shedder whose configuration changes, the file of the gateway applies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tollgate_control::Precondition;
use tollgate_gateway::Gateway;
use tollgate_records::RecordKind;
use tollgate_records::documents::FieldFaults;
use tollgate_shed::{ShedMode, Shedder};

use super::AdminState;
use crate::api::body::{self, RequestBody};
#[cfg(test)]
use crate::api::description;
use crate::api::extract::{EmptyQuery, Query};
use crate::api::urgent::{self, AuditNote, checked_reason};
use crate::api::{ApiProblem, ApiResult, RequestContext, WriteResult};
use crate::scopes::AccessScope;

/// What shedders do with what they decide.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SheddingBody {
    /// `enforce`; `shadow`: count what would be refused, and refuse nothing; `off`.
    #[schema(value_type = String)]
    mode: SheddingMode,
    /// `adaptive`, the caps of upstreams on requests in flight, by default; `fairness`, what lowers the rates of their busiest
    /// callers; or `worker`, the shedder of this server.
    #[serde(default)]
    #[schema(value_type = String)]
    shedder: SwitchedShedder,
    /// Only of this upstream; of all by default.
    upstream: Option<String>,
    reason: Option<String>,
}

/// The shedder that is switched, as JSON.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SwitchedShedder {
    #[default]
    Adaptive,
    Fairness,
    Worker,
}

/// The mode of a shedder, as JSON.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SheddingMode {
    Enforce,
    Shadow,
    Off,
}

/// Show the gateway of this server
///
/// Routes with the responses to their requests, upstreams with their servers and shedders, the worker shedder, and what was
/// shed; the keys of tokens, and tokens that were not accepted. Totals are since the start, or since the configuration of the upstream or the shedder changed. 404 if this server has no gateway.
#[utoipa::path(
    get, path = "/admin/v1/gateway", operation_id = "gateway", tag = "gateway",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let status = gateway(&state)?.status();
    let body = json!({
        "server": state.observability.name,
        "routes": status.routes,
        "upstreams": status.upstreams,
        "worker": status.worker,
        "shed": status.shed,
        "keys": status.keys,
    });
    Ok(Json(body).into_response())
}

/// Switch the shedders of this server's gateway
///
/// `shadow` and `off` end the refusals with 503 that protect upstreams, or with `"shedder": "worker"` this server; `enforce`
/// begins them again. In force at once, on this server only, until it restarts or the configuration of the shedder changes. The change does not wait for the store of
/// record; `audited` is false if the audit log could not be written.
#[utoipa::path(
    put, path = "/admin/v1/gateway/shedding", operation_id = "gateway_shedding", tag = "gateway",
    params(("Idempotency-Key" = Option<String>, Header, description = "A key under which the change is made once")),
    request_body = SheddingBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn put_shedding(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    sent: RequestBody,
) -> WriteResult {
    context.require_emergency("it is needed to switch the shedding of the gateway")?;
    if context.expect != Precondition::Any {
        let detail = "the shedding of the gateway has no generation; omit If-Match";
        return Err(ApiProblem::bad_request("bad_precondition", detail).into());
    }
    let gateway = gateway(&state)?;
    let sent = sent.read_new(&state.control, &context).await?;
    let SheddingBody { mode, shedder, upstream, reason } = body::parse(&sent)?;
    let mut faults = FieldFaults::default();
    if shedder == SwitchedShedder::Worker && upstream.is_some() {
        faults.add("upstream", "the worker shedder protects this server; omit it");
    }
    let reason = checked_reason(reason, faults)?;
    let (mode, shedder) = (mode.mode(), shedder.shedder());
    let changed = match shedder {
        Shedder::Worker => {
            gateway.set_worker_shedding(mode);
            Vec::new()
        }
        _ => gateway.set_shedding(shedder, upstream.as_deref(), mode),
    };
    if changed.is_empty() && shedder != Shedder::Worker {
        return Err(nothing_to_switch(gateway, shedder, upstream.as_deref()).into());
    }
    tracing::warn!(mode = mode.name(), %shedder, upstreams = ?changed, by = context.principal.name, reason, "the shedding of the gateway was switched");
    let answer = json!({
        "server": state.observability.name,
        "mode": mode.name(),
        "shedder": shedder.name(),
        "upstreams": changed,
        "detail": "in force on this server, until it restarts or the configuration of the shedder changes; other servers are unchanged",
    });
    let action = match mode {
        ShedMode::Enforce => "gateway.shedding-enforce",
        ShedMode::Shadow => "gateway.shedding-shadow",
        ShedMode::Off => "gateway.shedding-off",
    };
    let document = json!({"shedding": mode.name(), "shedder": shedder.name(), "upstream": upstream});
    let note = AuditNote { kind: RecordKind::Gateway, action, reason, document };
    Ok(urgent::respond(&state, &context, &sent, note, answer).await)
}

fn gateway(state: &AdminState) -> Result<&Gateway, ApiProblem> {
    state.gateway.as_deref().ok_or_else(|| {
        let detail = "this server has no gateway; start it with one: tollgate serve --gateway gateway.yaml";
        ApiProblem::not_found("no_gateway", detail)
    })
}

fn nothing_to_switch(gateway: &Gateway, shedder: Shedder, upstream: Option<&str>) -> ApiProblem {
    let names: Vec<String> = gateway.status().upstreams.into_iter().map(|upstream| upstream.name).collect();
    if let Some(name) = upstream.filter(|name| !names.iter().any(|one| one == name)) {
        let detail = format!("there is no upstream `{name}`; the gateway has {}", names.join(", "));
        return ApiProblem::new(StatusCode::NOT_FOUND, "unknown_upstream", detail);
    }
    let which = upstream.map_or("no upstream".to_owned(), |name| format!("upstream `{name}` does not"));
    let has = if upstream.is_some() { "have" } else { "has" };
    let detail =
        format!("{which} {has} the shedder `{shedder}`; write `{shedder}` to the upstream in the file of the gateway");
    ApiProblem::new(StatusCode::NOT_FOUND, "no_shedder", detail)
}

impl SwitchedShedder {
    fn shedder(self) -> Shedder {
        match self {
            SwitchedShedder::Adaptive => Shedder::Adaptive,
            SwitchedShedder::Fairness => Shedder::Fairness,
            SwitchedShedder::Worker => Shedder::Worker,
        }
    }
}

impl SheddingMode {
    fn mode(self) -> ShedMode {
        match self {
            SheddingMode::Enforce => ShedMode::Enforce,
            SheddingMode::Shadow => ShedMode::Shadow,
            SheddingMode::Off => ShedMode::Off,
        }
    }
}
