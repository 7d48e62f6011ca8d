//! The audit log: paged or followed.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::{AuditEntry, AuditFilter, Db};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;

#[cfg(test)]
use super::description;
use super::extract::{Query, flag};
use super::names::ListPage;
use super::stream::{LineSender, lines};
use super::{Api, ApiProblem, ApiResult, RequestContext, records};
use crate::scopes::AccessScope;
use tollgate_net::Closing;

/// Selects entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    after: Option<u64>,
    by: Option<String>,
    kind: Option<String>,
    domain: Option<String>,
    name: Option<String>,
    since: Option<Rfc3339>,
    until: Option<Rfc3339>,
    limit: Option<usize>,
    follow: Option<String>,
    newest: Option<String>,
    before: Option<u64>,
}

/// Entries of one read: their documents can be long.
const BATCH: usize = 50;
/// A page ends after this many bytes.
const MAX_BYTES: usize = 8 << 20;
/// How often the log is polled while no change is signalled: other processes write to the same file.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a follower is served. Clients continue with `after`. Connections live a little longer.
const MAX_FOLLOW: Duration = Duration::from_secs(55 * 60);

/// The members of a token's record that are shown: nothing that identifies the secret.
const VISIBLE_TOKEN_MEMBERS: [&str; 5] = ["scopes", "created_by", "created_at", "expires_at", "old_until"];

/// List audit log entries
#[utoipa::path(
    get, path = "/admin/v1/audit", operation_id = "audit", tag = "audit",
    params(
        ("after" = Option<u64>, Query, description = "Entries past this id"),
        ("by" = Option<String>, Query), ("kind" = Option<String>, Query), ("domain" = Option<String>, Query),
        ("name" = Option<String>, Query), ("since" = Option<String>, Query), ("until" = Option<String>, Query),
        ("limit" = Option<u64>, Query),
        ("follow" = Option<bool>, Query, description = "Stream entries as lines of JSON: those after `after` (by default none), then new ones"),
        ("newest" = Option<bool>, Query, description = "Newest first"),
        ("before" = Option<u64>, Query, description = "With `newest`: entries before this id")
    ),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(super) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    closing: Option<Extension<Closing>>,
    Query(query): Query<AuditQuery>,
) -> ApiResult {
    context.require(AccessScope::Audit)?;
    let follow = flag("follow", query.follow.as_deref())?;
    let newest = flag("newest", query.newest.as_deref())?;
    if newest && (follow || query.after.is_some()) || !newest && query.before.is_some() {
        return Err(ApiProblem::bad_request(
            "bad_query",
            "newest can be combined with before, not with after or follow",
        ));
    }
    let page_size = records::page_size(query.limit)?;
    let (after, before) = (query.after, query.before);
    let filter = query.filter()?;
    let db = records::db(&api)?;
    if follow {
        let after = match after {
            Some(after) => after,
            None => latest(db).await?,
        };
        return Ok(follow_response(db.clone(), filter, after, closing.map(|Extension(closing)| closing)));
    }
    let (mut items, mut bytes, mut last) = (Vec::new(), 0, if newest { before } else { after });
    loop {
        let count = BATCH.min(page_size - items.len());
        let page = match newest {
            true => db.audit_descending(&filter, last, count).await?,
            false => db.audit(&filter, last.unwrap_or(0), count).await?,
        };
        let is_last = page.len() < count;
        for entry in page {
            last = Some(entry.id);
            bytes += length(&entry);
            items.push(to_json(&entry));
        }
        if is_last || items.len() == page_size || bytes > MAX_BYTES {
            let next = last.filter(|_| !is_last).map(|last| last.to_string());
            return Ok(Json(ListPage { items, next }).into_response());
        }
    }
}

impl AuditQuery {
    fn filter(self) -> Result<AuditFilter, ApiProblem> {
        let kind = match self.kind {
            None => None,
            Some(text) => Some(RecordKind::parse(&text).ok_or_else(|| {
                let kinds: Vec<&str> = RecordKind::ALL.into_iter().map(RecordKind::name).collect();
                ApiProblem::bad_request("bad_query", format!("kind={text}: must be one of {}", kinds.join(", ")))
            })?),
        };
        let (since, until) = (self.since.map(|at| at.0), self.until.map(|at| at.0));
        Ok(AuditFilter { by: self.by, kind, domain: self.domain, name: self.name, since, until })
    }
}

/// The id of the last entry.
async fn latest(db: &Db) -> Result<u64, ApiProblem> {
    let last = db.audit_descending(&AuditFilter::default(), None, 1).await?;
    Ok(last.first().map_or(0, |last| last.id))
}

fn length(entry: &AuditEntry) -> usize {
    [&entry.before, &entry.after].into_iter().flatten().map(String::len).sum::<usize>() + entry.reason.len()
}

fn to_json(entry: &AuditEntry) -> Value {
    let document = |text: &Option<String>| {
        let mut document: Value = text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if let (RecordKind::Token, Value::Object(members)) = (entry.name.kind, &mut document) {
            members.retain(|name, _| VISIBLE_TOKEN_MEMBERS.contains(&name.as_str()));
        }
        document
    };
    json!({
        "id": entry.id,
        "generation": entry.generation,
        "at": Rfc3339(entry.at),
        "by": entry.by,
        "from": entry.from,
        "action": entry.action,
        "kind": entry.name.kind.name(),
        "domain": entry.name.domain,
        "name": entry.name.name,
        "before": document(&entry.before),
        "after": document(&entry.after),
        "reason": entry.reason,
    })
}

/// Streams the log from an id on, until the client disconnects, the server stops, or the time is up.
fn follow_response(db: Db, filter: AuditFilter, after: u64, closing: Option<Closing>) -> Response {
    let (out, response) = lines();
    tokio::spawn(async move {
        let stopped = async {
            match closing {
                Some(mut closing) => closing.begun().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = follow(&db, &filter, after, &out) => {}
            () = out.closed() => {}
            () = stopped => {}
            () = tokio::time::sleep(MAX_FOLLOW) => {}
        }
    });
    response
}

/// Returns when the client disconnects.
async fn follow(db: &Db, filter: &AuditFilter, mut after: u64, out: &LineSender) {
    let mut last_generation = 0;
    loop {
        match db.audit(filter, after, BATCH).await {
            Ok(page) => {
                let is_last = page.len() < BATCH;
                for entry in page {
                    after = entry.id;
                    if out.line(&to_json(&entry)).await.is_err() {
                        return;
                    }
                }
                if !is_last {
                    continue;
                }
            }
            // Entries are sent when the database is back.
            Err(error) => tracing::debug!(%error, "the audit log can't be read"),
        }
        tokio::select! {
            generation = db.wait_for_change(last_generation) => last_generation = generation,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}
