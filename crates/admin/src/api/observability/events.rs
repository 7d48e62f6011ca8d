//! What changed and when, for marks on charts: events of this server, and changes by operators.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollgate::{Span, Timestamp};
use tollgate_control::{AuditEntry, AuditFilter, Db};
use tollgate_records::{RecordKind, Rfc3339};

use super::AdminState;
use crate::api::extract::Query;
use crate::api::{ApiResult, RequestContext, records};
use crate::observe::events::{EventKind, ServerEvent};
use crate::scopes::AccessScope;

/// Selects events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    since: Option<Rfc3339>,
    limit: Option<usize>,
}

/// An event in a response.
#[derive(Serialize)]
struct EventItem {
    at: Rfc3339,
    kind: &'static str,
    text: String,
    domain: Option<String>,
    name: Option<String>,
    by: Option<String>,
    reason: Option<String>,
    /// The type, the id and the details of the event that was sent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    sent: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Map<String, Value>>,
}

/// Kinds of changes that decisions depend on. Quotas and tokens are in the audit log only.
const KINDS: [RecordKind; 6] = [
    RecordKind::Switch,
    RecordKind::Block,
    RecordKind::Emergency,
    RecordKind::Rule,
    RecordKind::Lease,
    RecordKind::Gateway,
];
/// The default age of events.
const DEFAULT_AGE: Span = Span::from_secs(86_400);
/// Time limit for the store of record. Events of this server are shown without it.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(2);

/// List what changed: starts, reloads, levels of the counter store, signals, and changes by operators
///
/// The newest first. `kind` is `start`, `reload`, `reload_failed`, `store` or `signal` for this server; and `switch`, `block`, `emergency`, `rule`,
/// `lease` or `gateway` for changes in the audit log, for callers with the scope `audit`: `changes` says whether they are listed (`shown`, `not_allowed` or
/// `unavailable`). Events of this server have the `type` and `id` with which they were sent and, for callers with the scope `audit`, their
/// details in `data`.
#[utoipa::path(
    get, path = "/admin/v1/events", operation_id = "events", tag = "seeing",
    params(
        ("since" = Option<String>, Query, description = "At this time or later; a day ago by default"),
        ("limit" = Option<u64>, Query, description = "The newest ones: 1 to 1000, 100 by default")
    ),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<EventQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let max = records::page_size(query.limit)?;
    let since = query.since.map_or_else(|| state.control.now().before(DEFAULT_AGE), |since| since.0);
    let own = state.observability.sampler.events.all().into_iter().filter(|event| event.at >= since);
    let is_audit = context.principal.scopes.contains(AccessScope::Audit);
    let mut items: Vec<EventItem> = own.map(|event| EventItem::from_event(event, is_audit)).collect();
    let changes = match state.control.db() {
        _ if !is_audit => "not_allowed",
        None => "unavailable",
        Some(db) => match tokio::time::timeout(CHANGES_TIMEOUT, changes(db, since, max)).await {
            Ok(Ok(changes)) => {
                items.extend(changes.into_iter().map(EventItem::from_change));
                "shown"
            }
            _ => "unavailable",
        },
    };
    items.sort_by_key(|item| Reverse(item.at.0));
    items.truncate(max);
    Ok(Json(json!({"items": items, "changes": changes})).into_response())
}

async fn changes(db: &Db, since: Timestamp, max: usize) -> Result<Vec<AuditEntry>, tollgate_control::DbError> {
    let mut all = Vec::new();
    for kind in KINDS {
        let filter = AuditFilter { kind: Some(kind), since: Some(since), ..AuditFilter::default() };
        all.extend(db.audit_descending(&filter, None, max).await?);
    }
    Ok(all)
}

impl EventItem {
    fn from_event(ServerEvent { at, kind, text, sent }: ServerEvent, with_data: bool) -> EventItem {
        let kind = match kind {
            EventKind::Start => "start",
            EventKind::Reload => "reload",
            EventKind::ReloadFailed => "reload_failed",
            EventKind::Store => "store",
            EventKind::Signal => "signal",
        };
        let (id, data) = (sent.as_ref().map(|event| event.id.clone()), sent.as_ref().map(|event| event.data.clone()));
        EventItem {
            at: Rfc3339(at),
            kind,
            text,
            domain: None,
            name: None,
            by: None,
            reason: None,
            sent: sent.map(|event| event.kind.name()),
            id,
            data: data.filter(|_| with_data),
        }
    }

    fn from_change(entry: AuditEntry) -> EventItem {
        let some = |text: String| (!text.is_empty()).then_some(text);
        EventItem {
            at: Rfc3339(entry.at),
            kind: entry.name.kind.name(),
            text: entry.action,
            domain: some(entry.name.domain),
            name: some(entry.name.name),
            by: Some(entry.by),
            reason: some(entry.reason),
            sent: None,
            id: None,
            data: None,
        }
    }
}
