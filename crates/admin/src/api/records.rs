//! Reading and writing records of all kinds.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, HeaderName};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate_control::{
    Change, Db, MAX_LISTED_RECORDS, Precondition, RecordFilter, RecordName, StoredRecord, WriteError, WriteOutcome,
};
use tollgate_records::{RecordKind, Rfc3339};
use tollgate_store::InRegion;

use super::guarded::{self, JudgedWrite, Passage};
use super::names::{self, ListPage};
use super::{Api, ApiProblem, ApiResult, RequestContext};
use crate::plan::PlannedRecord;
use crate::store_of_record::{ControlWriteError, URGENT_KINDS, UrgentChange};

static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Attempts of a write whose document depends on the stored record.
const MAX_ATTEMPTS: usize = 100;

/// How long a block, a switch or an emergency waits for the store of record.
pub(super) const URGENT_TIMEOUT: Duration = Duration::from_secs(2);
/// The problems of a store of record after which they are put in force without it.
const WAITABLE_CODES: [&str; 4] = ["control_away", "control_failed", "control_unconfirmed", "busy"];

/// The maximum length of an answer to a write, in bytes: documents are bounded.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Items of a page by default.
const DEFAULT_ITEMS: usize = 100;

/// A write request for one record.
#[derive(Clone)]
pub(super) struct RecordWrite<'a> {
    pub(super) context: &'a RequestContext,
    pub(super) name: RecordName,
    /// The action in the audit log.
    pub(super) action: &'static str,
    pub(super) reason: String,
    /// The body of the request.
    pub(super) body: &'a [u8],
}

/// What was judged of a write, and the result.
#[derive(Default)]
struct JudgedDocument {
    document: Option<String>,
    passage: Passage,
}

/// A prepared write.
pub(super) struct PreparedWrite {
    /// The new document; `None` deletes the record.
    pub(super) document: Option<String>,
    /// The response.
    pub(super) answer: Value,
    /// Other records that are written in the same transaction.
    pub(super) related: Vec<Change>,
    /// Fails if anything was written after this generation: the document depends on more than this record.
    pub(super) since: Option<u64>,
}

impl PreparedWrite {
    /// A document without related changes.
    pub(super) fn new(document: &impl Serialize, answer: Value) -> PreparedWrite {
        PreparedWrite { document: Some(to_text(document)), answer, related: Vec::new(), since: None }
    }

    /// A deletion.
    pub(super) fn deleted(answer: Value) -> PreparedWrite {
        PreparedWrite { document: None, answer, related: Vec::new(), since: None }
    }
}

/// The store of record.
pub(super) fn db(api: &Api) -> Result<&Db, ApiProblem> {
    api.db().ok_or_else(ApiProblem::off)
}

/// A record that must exist.
pub(super) async fn get(api: &Api, name: &RecordName) -> Result<StoredRecord, ApiProblem> {
    let found = db(api)?.get(name).await?;
    found.ok_or_else(|| missing(name))
}

/// The number of items of a page.
pub(super) fn page_size(limit: Option<usize>) -> Result<usize, ApiProblem> {
    let page_size = limit.unwrap_or(DEFAULT_ITEMS);
    if (1..=MAX_LISTED_RECORDS).contains(&page_size) {
        return Ok(page_size);
    }
    Err(ApiProblem::bad_request("bad_limit", format!("limit={page_size}: must be between 1 and {MAX_LISTED_RECORDS}")))
}

/// A page of records of all domains, and the start of the next one: `after` comes from the previous page.
pub(super) async fn page(
    api: &Api,
    filter: &RecordFilter,
    after: Option<&str>,
    limit: Option<usize>,
) -> Result<(Vec<StoredRecord>, Option<String>), ApiProblem> {
    let page_size = page_size(limit)?;
    let bad = || ApiProblem::bad_request("bad_after", "after: use the `next` of the previous page");
    let after = after.map(|after| parse_after(filter, after).ok_or_else(bad)).transpose()?;
    let page = db(api)?.list(filter, after.as_ref(), page_size).await?;
    let last = page.last().filter(|_| page.len() == page_size);
    let next = last.map(|StoredRecord { name, .. }| format!("{}:{}{}", name.domain.len(), name.domain, name.name));
    Ok((page, next))
}

/// A page of records of one domain, and the name where the next one starts.
pub(super) async fn page_of_names(
    api: &Api,
    filter: &RecordFilter,
    after: Option<RecordName>,
    limit: Option<usize>,
) -> Result<(Vec<StoredRecord>, Option<String>), ApiProblem> {
    let page_size = page_size(limit)?;
    let page = db(api)?.list(filter, after.as_ref(), page_size).await?;
    let next = page.last().filter(|_| page.len() == page_size).map(|last| last.name.name.clone());
    Ok((page, next))
}

/// Responds with a page of records in the form of `to_json`, with their history.
pub(super) async fn list<T: DeserializeOwned>(
    api: &Api,
    filter: &RecordFilter,
    after: Option<&str>,
    limit: Option<usize>,
    to_json: impl Fn(&RecordName, &T, Timestamp) -> Value,
) -> ApiResult {
    let (page, next) = page(api, filter, after, limit).await?;
    let items = page.iter().map(|stored| with_history(api, stored, &to_json)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(ListPage { items, next }).into_response())
}

/// Responds with a record in the form of `to_json`, with its history.
pub(super) async fn show<T: DeserializeOwned>(
    api: &Api,
    name: &RecordName,
    to_json: impl Fn(&RecordName, &T, Timestamp) -> Value,
) -> ApiResult {
    let stored = get(api, name).await?;
    Ok(tagged_response(stored.generation, &with_history(api, &stored, to_json)?))
}

/// A record with its author and times.
fn with_history<T: DeserializeOwned>(
    api: &Api,
    stored: &StoredRecord,
    to_json: impl Fn(&RecordName, &T, Timestamp) -> Value,
) -> Result<Value, ApiProblem> {
    let mut answer = to_json(&stored.name, &parse_document(stored)?, api.now());
    answer["created_at"] = json!(Rfc3339(stored.created_at));
    answer["updated_at"] = json!(Rfc3339(stored.updated_at));
    answer["updated_by"] = json!(stored.updated_by);
    answer["generation"] = json!(stored.generation);
    Ok(answer)
}

/// Parses the start of a page: the length of the domain, the domain and the name.
fn parse_after(filter: &RecordFilter, after: &str) -> Option<RecordName> {
    let (length, both) = after.split_once(':')?;
    let (domain, name) = both.split_at_checked(length.parse().ok()?)?;
    Some(RecordName::new(filter.kind, domain, name))
}

/// Parses a stored document.
pub(super) fn parse_document<T: DeserializeOwned>(stored: &StoredRecord) -> Result<T, ApiProblem> {
    serde_json::from_str(stored.document.as_deref().unwrap_or_default()).map_err(|error| {
        let kind = stored.name.kind;
        let detail = format!("the stored {kind} can't be read, a newer Tollgate may have written it: {error}");
        ApiProblem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}

/// Encodes a document. Texts, numbers and lists are always valid JSON.
pub(super) fn to_text(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap_or_default()
}

/// Fails if there is no room for another record.
pub(super) fn check_capacity(count: usize, max: usize, what: &str) -> Result<(), ApiProblem> {
    if count < max {
        return Ok(());
    }
    let detail = format!("there are {count} {what}, and no more than {max} are possible; delete expired ones");
    Err(ApiProblem::new(http::StatusCode::UNPROCESSABLE_ENTITY, "too_many", detail))
}

/// The response to an earlier request with the same idempotency key. It is repeated whatever has changed since.
pub(super) async fn find_replay(
    api: &Api,
    context: &RequestContext,
    body: &[u8],
) -> Result<Option<Response>, ApiProblem> {
    let Some(once) = context.once(body, String::new()) else { return Ok(None) };
    match db(api)?.find_replay(&once, api.now()).await {
        Ok(Some(WriteOutcome::Replayed { generation, answer })) => Ok(Some(replayed_response(generation, answer))),
        Ok(_) => Ok(None),
        Err(why) => Err(ControlWriteError::Refused(why).into()),
    }
}

/// Removes the idempotency key of a write that was not completed, so that it can be retried. If this fails, a new key is needed.
pub(super) async fn forget(api: &Api, context: &RequestContext, body: &[u8]) {
    if let (Some(once), Some(db)) = (context.once(body, String::new()), api.db())
        && let Err(error) = db.delete_idempotency_key(&once.key).await
    {
        tracing::debug!(%error, "an idempotency key could not be removed");
    }
}

/// Checks the precondition without a write.
pub(super) fn check_expectation(context: &RequestContext, stored: Option<&StoredRecord>) -> Result<(), ApiProblem> {
    let now = stored.map(|stored| stored.generation);
    match (context.expect, now) {
        (Precondition::Absent, Some(now)) => Err(ApiProblem::exists(now)),
        (Precondition::Present, None) | (Precondition::Generation(_), None) => Err(ApiProblem::lost(None)),
        (Precondition::Generation(generation), Some(now)) if generation != now => Err(ApiProblem::lost(Some(now))),
        _ => Ok(()),
    }
}

/// Deletes an existing record.
pub(super) async fn delete(
    api: &Api,
    context: &RequestContext,
    name: RecordName,
    action: &'static str,
    answer: Value,
) -> ApiResult {
    delete_checked(api, context, name, action, |_| Ok(PreparedWrite::deleted(answer.clone()))).await
}

/// Deletes an existing record, if `prepare` returns a deletion for it.
pub(super) async fn delete_checked(
    api: &Api,
    context: &RequestContext,
    name: RecordName,
    action: &'static str,
    prepare: impl Fn(Option<&StoredRecord>) -> Result<PreparedWrite, ApiProblem>,
) -> ApiResult {
    let writing = RecordWrite { context, name, action, reason: String::new(), body: b"" };
    write(api, writing, prepare).await
}

/// Writes what `prepare` returns for the stored record. No update is lost: after a concurrent write it is prepared again, or the
/// request fails if it has a precondition. An earlier write with the same idempotency key is answered as before.
///
/// Blocks, switches and emergencies do not wait for the store of record: if it is unavailable, or busy with an import, they are put in
/// force and written later.
pub(super) async fn write(
    api: &Api,
    writing: RecordWrite<'_>,
    prepare: impl Fn(Option<&StoredRecord>) -> Result<PreparedWrite, ApiProblem>,
) -> ApiResult {
    let is_urgent = URGENT_KINDS.contains(&writing.name.kind) && writing.context.expect == Precondition::Any;
    if !is_urgent {
        return write_now(api, writing, &prepare, None).await;
    }
    let judged = judge_urgent(api, &writing, &prepare).await?;
    let unjudged = judged.passage.clone();
    let problem =
        match tokio::time::timeout(URGENT_TIMEOUT, write_now(api, writing.clone(), &prepare, Some(judged))).await {
            Ok(Err(problem)) if WAITABLE_CODES.contains(&problem.code) => problem,
            Ok(written) => return written,
            Err(_) => {
                let detail = format!("the store of record did not answer within {URGENT_TIMEOUT:?}");
                ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "control_away", detail)
            }
        };
    let mut response = write_pending(api, writing, &prepare, problem).await?;
    unjudged.annotate(&mut response);
    Ok(response)
}

/// Judges a write.
///
/// # Errors
/// If it is held, or if its confirmation is not valid.
async fn judge(api: &Api, writing: &RecordWrite<'_>, document: Option<&str>) -> Result<Passage, ApiProblem> {
    let RecordWrite { context, name, action, reason, body } = writing;
    let Some(guardrails) = context.guardrails().filter(|_| guarded::may_refuse(name.kind, document)) else {
        return Ok(Passage::default());
    };
    // A repeated request is answered as before, although its plan is used.
    if let Some(id) = &context.confirm
        && guarded::find(api, id).await?.is_none()
        && find_replay(api, context, body).await?.is_some()
    {
        return Ok(Passage::default());
    }
    let record = PlannedRecord::new(name.kind, &name.domain, &name.name, document);
    let digest = context.digest(body);
    let write = JudgedWrite { context, name: name.clone(), action, reason, digest };
    write.pass(api, guardrails, vec![record]).await
}

/// Judges a write that does not wait for the store of record. What it writes does not depend on what is stored.
async fn judge_urgent(
    api: &Api,
    writing: &RecordWrite<'_>,
    prepare: impl Fn(Option<&StoredRecord>) -> Result<PreparedWrite, ApiProblem>,
) -> Result<JudgedDocument, ApiProblem> {
    // What must exist is looked up by the write.
    let Ok(PreparedWrite { document, .. }) = prepare(None) else { return Ok(JudgedDocument::default()) };
    match judge(api, writing, document.as_deref()).await {
        Err(problem) if WAITABLE_CODES.contains(&problem.code) => {
            tracing::warn!("a {} was not judged by guardrails: {}", writing.name.kind, problem.detail);
            let passage = Passage::unjudged("the store of record is unavailable: the change could not be held");
            Ok(JudgedDocument { document, passage })
        }
        passage => Ok(JudgedDocument { document, passage: passage? }),
    }
}

/// Puts a change in force that the store of record can't take now, for this reason.
async fn write_pending(
    api: &Api,
    writing: RecordWrite<'_>,
    prepare: impl Fn(Option<&StoredRecord>) -> Result<PreparedWrite, ApiProblem>,
    problem: ApiProblem,
) -> ApiResult {
    let RecordWrite { context, name, action, reason, .. } = writing;
    let waiting = api.pending_change(&name).filter(|change| change.document.is_some()).map(StoredRecord::from);
    let PreparedWrite { document, mut answer, .. } = match prepare(waiting.as_ref()) {
        // The record may be in the store of record.
        Err(missing) if missing.status == StatusCode::NOT_FOUND => return Err(problem),
        prepared => prepared?,
    };
    let change = UrgentChange { name, document, action, reason };
    let outcome = api.put_pending(&context.principal.author(), change).await?;
    let rules = api.limiter().rules();
    let Notified { place, missed, note } = Notified::new(&outcome.shared, names::this_region(&rules));
    let saved = if outcome.is_saved { "" } else { "; it can't be saved, so a restart of this server ends it" };
    answer["pending"] = json!({
        "id": outcome.id,
        "in_force": place,
        "saved": outcome.is_saved,
        "detail": format!("in force on this server; {note}{saved}; it is written to the store of record when that is available"),
        "reason": problem.detail,
    });
    if !missed.is_empty() {
        answer["pending"]["missed_regions"] = json!(missed);
    }
    let mut response = json_response(None, answer.to_string());
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// Which other servers were notified of a change.
#[derive(Debug)]
struct Notified<'s> {
    place: &'static str,
    /// Regions of which no server was notified, if some others were.
    missed: Vec<&'s str>,
    note: String,
}

impl<'s> Notified<'s> {
    fn new(shared: &'s [InRegion<()>], here: &'s str) -> Notified<'s> {
        let faults = shared.iter().filter_map(|one| {
            let why = one.answer.as_ref().err()?;
            Some((one.region.as_deref().unwrap_or(here), why))
        });
        let faults: Vec<(&str, &String)> = faults.collect();
        match faults.as_slice() {
            [] => Notified {
                place: "fleet",
                missed: Vec::new(),
                note: "all servers that share its counters get it within seconds".to_owned(),
            },
            [(_, why), ..] if faults.len() == shared.len() => Notified {
                place: "server",
                missed: Vec::new(),
                note: format!("repeat it on the others, which were not notified: {why}"),
            },
            some => {
                let missed: Vec<&str> = some.iter().map(|(region, _)| *region).collect();
                let each: Vec<String> = some.iter().map(|(region, why)| format!("{region} ({why})")).collect();
                let note = format!(
                    "all servers of the regions that could be reached get it within seconds, and those of {} when they can be; \
                     until then, repeat it there",
                    each.join(", ")
                );
                Notified { place: "regions", missed, note }
            }
        }
    }
}

async fn write_now(
    api: &Api,
    writing: RecordWrite<'_>,
    prepare: impl Fn(Option<&StoredRecord>) -> Result<PreparedWrite, ApiProblem>,
    mut judged: Option<JudgedDocument>,
) -> ApiResult {
    let RecordWrite { context, name, action, reason, body } = writing.clone();
    let mut attempts_left = MAX_ATTEMPTS;
    loop {
        let now = db(api)?.get(&name).await?;
        let PreparedWrite { document, answer, related, since } = prepare(now.as_ref())?;
        let passage = match judged.take() {
            Some(judged) if judged.document == document => judged.passage,
            // A write that fails its precondition need not be judged.
            _ if check_expectation(context, now.as_ref()).is_err() => Passage::default(),
            _ => judge(api, &writing, document.as_deref()).await?,
        };
        judged = Some(JudgedDocument { document: document.clone(), passage: passage.clone() });
        let answer = answer.to_string();
        let expect = match (context.expect, &now) {
            (Precondition::Any, Some(now)) => Precondition::Generation(now.generation),
            // A deleted record must exist.
            (Precondition::Any, None) if document.is_none() => Precondition::Present,
            (Precondition::Any, None) => Precondition::Absent,
            (explicit, _) => explicit,
        };
        let change = Change { name: name.clone(), expect, document, action: action.to_owned(), reason: reason.clone() };
        let changes = std::iter::once(change).chain(related).chain(passage.plan.clone()).collect();
        let once = context.once(body, answer.clone());
        let written = api.write_since(&context.principal.author(), changes, once, since).await;
        attempts_left -= 1;
        match written {
            Ok(WriteOutcome::Committed { generation, .. }) => {
                let mut response = json_response(Some(generation), answer);
                passage.annotate(&mut response);
                return Ok(response);
            }
            Ok(WriteOutcome::Replayed { generation, answer }) => return Ok(replayed_response(generation, answer)),
            // Another request used the plan.
            Err(ControlWriteError::Refused(WriteError::PreconditionFailed { name, .. }))
                if name.kind == RecordKind::Plan =>
            {
                return Err(guarded::used_up(&name.name));
            }
            Err(ControlWriteError::Refused(WriteError::PreconditionFailed { current: now, .. })) => {
                match (context.expect, now) {
                    (Precondition::Any, None) if expect == Precondition::Present => return Err(missing(&name)),
                    (Precondition::Any, _) if attempts_left > 0 => {}
                    (Precondition::Absent, Some(now)) => return Err(ApiProblem::exists(now)),
                    (_, now) => return Err(ApiProblem::lost(now)),
                }
            }
            Err(ControlWriteError::Refused(WriteError::Stale { .. })) if attempts_left > 0 => {
                api.catch_up(None).await?;
            }
            Err(why) => return Err(why.into()),
        }
    }
}

/// The record does not exist.
pub(super) fn missing(name: &RecordName) -> ApiProblem {
    ApiProblem::not_found("not_found", format!("there is no {} {:?}", name.kind, name.name))
}

/// Whether a response repeats an earlier one.
pub(super) fn is_replayed(response: &Response) -> bool {
    response.headers().contains_key(&REPLAYED)
}

/// A repeated response.
pub(super) fn replayed_response(generation: u64, answer: String) -> Response {
    let mut response = json_response(Some(generation), answer);
    response.headers_mut().insert(&REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The same response with another member. The repetition of the request will not have it.
pub(super) async fn with_member(response: Response, add: impl FnOnce(&mut Value)) -> Response {
    let (mut parts, body) = response.into_parts();
    let read = axum::body::to_bytes(body, MAX_ANSWER_BYTES).await;
    let mut answer: Value = read.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    add(&mut answer);
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, answer.to_string().into())
}

/// A response with the generation as `ETag`.
pub(super) fn tagged_response(generation: u64, answer: &impl Serialize) -> Response {
    with_tag(Json(answer).into_response(), Some(generation))
}

pub(super) fn json_response(generation: Option<u64>, answer: String) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    with_tag(response, generation)
}

fn with_tag(mut response: Response, generation: Option<u64>) -> Response {
    if let Some(tag) = generation.and_then(|generation| HeaderValue::try_from(format!("\"{generation}\"")).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said if this region, `us-west` and `eu-west` answer so.
    fn notified(answers: &[(Option<&str>, Result<(), &str>)]) -> (&'static str, Vec<String>, String) {
        let shared = answers.iter().map(|(region, answer)| InRegion {
            region: region.map(str::to_owned),
            answer: answer.map_err(str::to_owned),
        });
        let shared: Vec<InRegion<()>> = shared.collect();
        let Notified { place, missed, note } = Notified::new(&shared, "us-east");
        (place, missed.into_iter().map(str::to_owned).collect(), note)
    }

    #[test]
    fn a_change_is_in_force_in_the_fleet_only_if_all_regions_were_notified() {
        let away = Err("no answer");
        let (place, missed, _) = notified(&[(None, Ok(())), (Some("us-west"), Ok(()))]);
        assert_eq!((place, missed.len()), ("fleet", 0));
        let (place, missed, note) = notified(&[(None, Ok(())), (Some("us-west"), away), (Some("eu-west"), Ok(()))]);
        assert_eq!((place, missed), ("regions", vec!["us-west".to_owned()]));
        assert!(note.contains("those of us-west (no answer) when they can be"), "{note}");
        let (place, missed, _) = notified(&[(None, away), (Some("us-west"), Ok(()))]);
        assert_eq!((place, missed), ("regions", vec!["us-east".to_owned()]));
        for answers in [&[(None, away)][..], &[(None, away), (Some("us-west"), away)]] {
            let (place, missed, note) = notified(answers);
            assert_eq!((place, missed.len()), ("server", 0));
            assert!(note.starts_with("repeat it on the others"), "{note}");
        }
    }
}
