//! Operators' changes of leases on this server: off and on, and purges of what it holds and remembers of keys.
//!
//! They are meant for incidents, so they do not wait for the store of record: a change is made first and then written to the
//! audit log, and the response says whether that succeeded. Nothing is stored: after a restart the setting `leases` applies.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tollgate_control::Precondition;
use tollgate_core::Key;
use tollgate_records::RecordKind;
use tollgate_records::documents::FieldFaults;
use tollgate_store::{PurgedLeases, SharedStore};

use super::AdminState;
use crate::api::body::{self, RequestBody};
#[cfg(test)]
use crate::api::description;
use crate::api::extract::{DomainQuery, EmptyQuery, Query};
use crate::api::urgent::{self, AuditNote, checked_reason};
use crate::api::{ApiProblem, RequestContext, WriteResult, names};
use crate::observe::KeyVisibility;

/// Whether this server leases units.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeasesBody {
    /// `false`: everything is given back within a second, and Redis decides every request.
    enabled: bool,
    reason: Option<String>,
}

/// Selects the keys to purge: those of a rule, a key, or both; or all.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeBody {
    /// A key as lists show it, or a caller.
    key: Option<String>,
    rule: Option<String>,
    /// All keys, of the domain if there is one.
    all: Option<bool>,
    reason: Option<String>,
}

/// The keys to purge.
struct KeySelection {
    domain: Option<String>,
    rule: Option<String>,
    key: Option<String>,
}

/// Switch the leases of this server off or on
///
/// Off: what is held is given back within a second, and Redis decides every request. Other servers are not changed, and after a
/// restart the setting `leases` applies. The change does not wait for the store of record; `audited` is false if the audit log
/// could not be written.
#[utoipa::path(
    put, path = "/admin/v1/leases", operation_id = "leases_put", tag = "leases",
    params(("Idempotency-Key" = Option<String>, Header, description = "A key under which the change is made once")),
    request_body = LeasesBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn put(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    sent: RequestBody,
) -> WriteResult {
    let store = begin(&state, &context)?;
    let sent = sent.read_new(&state.control, &context).await?;
    let LeasesBody { enabled, reason } = body::parse(&sent)?;
    let reason = checked_reason(reason, FieldFaults::default())?;
    let held = store.leases(0).held;
    store.set_leases(enabled);
    let answer = json!({
        "server": state.observability.name,
        "enabled": enabled,
        "units_held": held,
        "detail": format!("on this server, until it restarts; {}", if enabled {
            "busy keys are leased again"
        } else {
            "what it holds is given back within a second"
        }),
    });
    let action = if enabled { "lease.on" } else { "lease.off" };
    let note = AuditNote { kind: RecordKind::Lease, action, reason, document: json!({"enabled": enabled}) };
    Ok(urgent::respond(&state, &context, &sent, note, answer).await)
}

/// Purge what this server holds and remembers of keys
///
/// Units that it took ahead of requests are given back, and refusals that it answers without Redis are forgotten: Redis decides
/// the next request of each key. Other servers are not changed. The change does not wait for the store of record; `audited` is
/// false if the audit log could not be written.
#[utoipa::path(
    post, path = "/admin/v1/leases/purge", operation_id = "leases_purge", tag = "leases",
    params(
        ("domain" = Option<String>, Query, description = "Only keys of this domain"),
        ("Idempotency-Key" = Option<String>, Header, description = "A key under which the change is made once")
    ),
    request_body = PurgeBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn purge(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(DomainQuery { domain }): Query<DomainQuery>,
    sent: RequestBody,
) -> WriteResult {
    begin(&state, &context)?;
    let sent = sent.read_new(&state.control, &context).await?;
    let (selection, reason) = body::parse::<PurgeBody>(&sent)?.selection(&state, domain)?;
    let document = json!({"domain": selection.domain, "rule": selection.rule, "key": selection.key});
    let purging = state.clone();
    // It reads all keys: not on an async thread.
    let purged = tokio::task::spawn_blocking(move || {
        let is_selected = |key: &Key<'_>| selection.contains(&purging, key);
        let store = shared(&purging)?;
        // Pools first: a refusal that they cause meanwhile is dropped with the others.
        Ok::<_, ApiProblem>((store.purge_leases(&is_selected), store.purge_refusals(&is_selected)))
    });
    let failed = |_| ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the keys can't be read");
    let (PurgedLeases { keys, units }, refusals) = purged.await.map_err(failed)??;
    let answer = json!({
        "server": state.observability.name,
        "keys": keys,
        "units_returned": units,
        "refusals": refusals,
        "detail": "on this server; other servers are unchanged",
    });
    let note = AuditNote { kind: RecordKind::Lease, action: "lease.purge", reason, document };
    Ok(urgent::respond(&state, &context, &sent, note, answer).await)
}

/// The store, if the caller may change its leases and it has some.
fn begin<'s>(state: &'s AdminState, context: &RequestContext) -> Result<&'s dyn SharedStore, ApiProblem> {
    context.require_emergency("it is needed to change leases")?;
    if context.expect != Precondition::Any {
        return Err(ApiProblem::bad_request("bad_precondition", "leases have no generation; omit If-Match"));
    }
    shared(state)
}

fn shared(state: &AdminState) -> Result<&dyn SharedStore, ApiProblem> {
    state.limiter().store().shared().ok_or_else(|| {
        let detail =
            "the counters of this server are in memory, and nothing is leased; leases need counters in Redis (--store)";
        ApiProblem::new(StatusCode::CONFLICT, "no_leases", detail)
    })
}

impl PurgeBody {
    fn selection(self, state: &AdminState, domain: Option<String>) -> Result<(KeySelection, String), ApiProblem> {
        let PurgeBody { key, rule, all, reason } = self;
        let mut faults = FieldFaults::default();
        match (all, key.is_some() || rule.is_some()) {
            (Some(true), true) => faults.add("all", "it can't be combined with `key` or `rule`; omit one"),
            (Some(true), false) | (None | Some(false), true) => {}
            (None | Some(false), false) => {
                faults.add(
                    "",
                    "select what to purge: `\"key\": \"ada\"`, `\"rule\": \"per-key\"` or both, or `\"all\": true`",
                );
            }
        }
        let reason = checked_reason(reason, faults)?;
        let rules = state.limiter().rules();
        // A typo would purge nothing, unnoticed.
        let domain = match (&rule, domain) {
            (Some(rule), domain) => {
                let domain = names::any_domain(&rules, domain.as_deref())?;
                names::rule(domain, rule)?;
                Some(domain.name().to_owned())
            }
            (None, Some(domain)) => Some(names::domain(&rules, Some(&domain))?.name().to_owned()),
            (None, None) => None,
        };
        Ok((KeySelection { domain, rule, key }, reason))
    }
}

impl KeySelection {
    /// Whether it selects a key. A key and its caller are compared in every form in which lists show them.
    fn contains(&self, state: &AdminState, key: &Key<'_>) -> bool {
        let scope = key.scope();
        if self.domain.as_ref().is_some_and(|domain| domain != scope.domain())
            || self.rule.as_ref().is_some_and(|rule| rule != scope.rule())
        {
            return false;
        }
        let Some(text) = self.key.as_deref() else { return true };
        let observability = &state.observability;
        let name = observability.observer.heavy_hitters().name_of(key);
        [name.clear_key(), name.key()].contains(&text)
            || [name.clear_caller(), name.caller()].contains(&Some(text))
            || text.starts_with('#')
                && (observability.display_key(&name, KeyVisibility::Hashed) == text
                    || observability.display_caller(&name, KeyVisibility::Hashed).as_deref() == Some(text))
    }
}
