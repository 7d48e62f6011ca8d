//! The audit log: page by page, or as it is written.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate_control::{AuditEntry, AuditFilter, Db, Kind};

use super::extract::{Query, flag};
use super::names::Page;
use super::stream::{Lines, lines};
use super::{Answer, Api, Asked, Problem, openapi, records};
use crate::admin::who::Scope;
use crate::net::Closing;

/// Which entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    after: Option<u64>,
    by: Option<String>,
    kind: Option<String>,
    domain: Option<String>,
    name: Option<String>,
    since: Option<Moment>,
    until: Option<Moment>,
    limit: Option<usize>,
    follow: Option<String>,
    newest: Option<String>,
    before: Option<u64>,
}

/// Entries that are read at once: their documents can be long.
const AT_ONCE: usize = 50;
/// A page ends where it has so many bytes.
const MOST_BYTES: usize = 8 << 20;
/// How often the log is looked at while nobody says that something was written: other processes write to the same file.
const POLL: Duration = Duration::from_secs(5);
/// How long the log is followed. Who wants more asks again, with `after`. Connections live a little longer.
const FOLLOWED_FOR: Duration = Duration::from_secs(55 * 60);

/// What of a token's record is told: nothing by which it could be known.
const OF_TOKENS: [&str; 5] = ["scopes", "created_by", "created_at", "expires_at", "old_until"];

/// What happened: who did what, when, from where
#[utoipa::path(
    get, path = "/admin/v1/audit", operation_id = "audit", tag = "audit",
    params(
        ("after" = Option<u64>, Query, description = "Entries past this id"),
        ("by" = Option<String>, Query), ("kind" = Option<String>, Query), ("domain" = Option<String>, Query),
        ("name" = Option<String>, Query), ("since" = Option<String>, Query), ("until" = Option<String>, Query),
        ("limit" = Option<u64>, Query),
        ("follow" = Option<bool>, Query, description = "Lines of JSON without end: what is past `after` (by default: from now on), then what happens"),
        ("newest" = Option<bool>, Query, description = "The newest first"),
        ("before" = Option<u64>, Query, description = "With `newest`: entries before this id")
    ),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    asked: Asked,
    closing: Option<Extension<Closing>>,
    Query(listed): Query<Listed>,
) -> Answer {
    asked.may(Scope::Audit)?;
    let follow = flag("follow", listed.follow.as_deref())?;
    let newest = flag("newest", listed.newest.as_deref())?;
    if newest && (follow || listed.after.is_some()) || !newest && listed.before.is_some() {
        return Err(Problem::bad_request("bad_query", "newest goes with before, and not with after or follow"));
    }
    let most = records::most(listed.limit)?;
    let (after, before) = (listed.after, listed.before);
    let filter = listed.filter()?;
    let db = records::db(&api)?;
    if follow {
        let after = match after {
            Some(after) => after,
            None => latest(db).await?,
        };
        return Ok(followed(db.clone(), filter, after, closing.map(|Extension(closing)| closing)));
    }
    let (mut items, mut bytes, mut last) = (Vec::new(), 0, if newest { before } else { after });
    loop {
        let wanted = AT_ONCE.min(most - items.len());
        let page = match newest {
            true => db.audit_back(&filter, last, wanted).await?,
            false => db.audit(&filter, last.unwrap_or(0), wanted).await?,
        };
        let is_last = page.len() < wanted;
        for entry in page {
            last = Some(entry.id);
            bytes += length(&entry);
            items.push(told(&entry));
        }
        if is_last || items.len() == most || bytes > MOST_BYTES {
            let next = last.filter(|_| !is_last).map(|last| last.to_string());
            return Ok(Json(Page { items, next }).into_response());
        }
    }
}

impl Listed {
    fn filter(self) -> Result<AuditFilter, Problem> {
        let kind = match self.kind {
            None => None,
            Some(text) => Some(Kind::parse(&text).ok_or_else(|| {
                let kinds: Vec<&str> = Kind::ALL.into_iter().chain([Kind::Counter]).map(Kind::as_str).collect();
                Problem::bad_request("bad_query", format!("kind={text}: write one of {}", kinds.join(", ")))
            })?),
        };
        let (since, until) = (self.since.map(|at| at.0), self.until.map(|at| at.0));
        Ok(AuditFilter { by: self.by, kind, domain: self.domain, name: self.name, since, until })
    }
}

/// The id of the last entry.
async fn latest(db: &Db) -> Result<u64, Problem> {
    let last = db.audit_back(&AuditFilter::default(), None, 1).await?;
    Ok(last.first().map_or(0, |last| last.id))
}

fn length(entry: &AuditEntry) -> usize {
    [&entry.before, &entry.after].into_iter().flatten().map(String::len).sum::<usize>() + entry.reason.len()
}

fn told(entry: &AuditEntry) -> Value {
    let document = |text: &Option<String>| {
        let mut document: Value = text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if let (Kind::Token, Value::Object(members)) = (entry.name.kind, &mut document) {
            members.retain(|name, _| OF_TOKENS.contains(&name.as_str()));
        }
        document
    };
    json!({
        "id": entry.id,
        "generation": entry.generation,
        "at": Moment(entry.at),
        "by": entry.by,
        "from": entry.from,
        "action": entry.action,
        "kind": entry.name.kind.as_str(),
        "domain": entry.name.domain,
        "name": entry.name.name,
        "before": document(&entry.before),
        "after": document(&entry.after),
        "reason": entry.reason,
    })
}

/// The log from an id on, until its reader goes, the server stops, or it has been long enough.
fn followed(db: Db, filter: AuditFilter, after: u64, closing: Option<Closing>) -> Response {
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
            () = out.gone() => {}
            () = stopped => {}
            () = tokio::time::sleep(FOLLOWED_FOR) => {}
        }
    });
    response
}

/// Ends when nobody takes the lines.
async fn follow(db: &Db, filter: &AuditFilter, mut after: u64, out: &Lines) {
    let mut heard = 0;
    loop {
        match db.audit(filter, after, AT_ONCE).await {
            Ok(page) => {
                let is_last = page.len() < AT_ONCE;
                for entry in page {
                    after = entry.id;
                    if out.line(&told(&entry)).await.is_err() {
                        return;
                    }
                }
                if !is_last {
                    continue;
                }
            }
            // It is away: what happens meanwhile is told when it is back.
            Err(error) => tracing::debug!(%error, "the audit log can't be read"),
        }
        tokio::select! {
            generation = db.changed(heard) => heard = generation,
            () = tokio::time::sleep(POLL) => {}
        }
    }
}
