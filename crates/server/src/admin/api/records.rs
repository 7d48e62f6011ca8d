//! Records, read and written: what all kinds of them have in common.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{ETAG, HeaderName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::control::Moment;
use tollgate_control::{Change, Db, Expect, Filter, MOST_LISTED, Name, Stored, WriteError, Written};

use super::names::Page;
use super::{Answer, Api, Asked, Problem};
use crate::control::NotWritten;

static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How often a write is tried whose document depends on what was there.
const TRIES: usize = 100;

/// How many items a page has that does not say.
const ITEMS: usize = 100;

/// A write that is about to happen.
pub(super) struct Writing<'a> {
    pub(super) asked: &'a Asked,
    pub(super) name: Name,
    /// What the audit log calls it.
    pub(super) action: &'static str,
    pub(super) reason: String,
    /// What was sent.
    pub(super) body: &'a [u8],
}

/// A document that is to be written.
pub(super) struct Made {
    /// `None` deletes.
    pub(super) document: Option<String>,
    /// What is answered.
    pub(super) answer: Value,
    /// Other records that are written with it.
    pub(super) beside: Vec<Change>,
    /// Only if nothing was written past this generation: it was made of more than the one record.
    pub(super) since: Option<u64>,
}

impl Made {
    /// A document and nothing beside it.
    pub(super) fn of(document: &impl Serialize, answer: Value) -> Made {
        Made { document: Some(text(document)), answer, beside: Vec::new(), since: None }
    }

    /// None any more.
    pub(super) fn deleted(answer: Value) -> Made {
        Made { document: None, answer, beside: Vec::new(), since: None }
    }
}

/// The store of record.
pub(super) fn db(api: &Api) -> Result<&Db, Problem> {
    api.db().ok_or_else(Problem::off)
}

/// A record that must be there.
pub(super) async fn get(api: &Api, name: &Name) -> Result<Stored, Problem> {
    let found = db(api)?.get(name).await?;
    found.ok_or_else(|| missing(name))
}

/// How many items a page is to have.
pub(super) fn most(limit: Option<usize>) -> Result<usize, Problem> {
    let most = limit.unwrap_or(ITEMS);
    if (1..=MOST_LISTED).contains(&most) {
        return Ok(most);
    }
    Err(Problem::bad_request("bad_limit", format!("limit={most}: write a number from 1 to {MOST_LISTED}")))
}

/// A page of records of any domains, and where the next one begins: `after` is what the page before said.
pub(super) async fn page(
    api: &Api,
    filter: &Filter,
    after: Option<&str>,
    limit: Option<usize>,
) -> Result<(Vec<Stored>, Option<String>), Problem> {
    let most = most(limit)?;
    let bad = || Problem::bad_request("bad_after", "after: write the `next` of the page before");
    let after = after.map(|after| place(filter, after).ok_or_else(bad)).transpose()?;
    let page = db(api)?.list(filter, after.as_ref(), most).await?;
    let last = page.last().filter(|_| page.len() == most);
    let next = last.map(|Stored { name, .. }| format!("{}:{}{}", name.domain.len(), name.domain, name.name));
    Ok((page, next))
}

/// A page of records of one domain, and where the next one begins: at a name.
pub(super) async fn page_of_names(
    api: &Api,
    filter: &Filter,
    after: Option<Name>,
    limit: Option<usize>,
) -> Result<(Vec<Stored>, Option<String>), Problem> {
    let most = most(limit)?;
    let page = db(api)?.list(filter, after.as_ref(), most).await?;
    let next = page.last().filter(|_| page.len() == most).map(|last| last.name.name.clone());
    Ok((page, next))
}

/// Answers with a page of records, each as `told` has it and with its history.
pub(super) async fn list<T: DeserializeOwned>(
    api: &Api,
    filter: &Filter,
    after: Option<&str>,
    limit: Option<usize>,
    told: impl Fn(&Name, &T, Timestamp) -> Value,
) -> Answer {
    let (page, next) = page(api, filter, after, limit).await?;
    let items = page.iter().map(|stored| in_full(api, stored, &told)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(Page { items, next }).into_response())
}

/// Answers with a record, as `told` has it and with its history.
pub(super) async fn show<T: DeserializeOwned>(
    api: &Api,
    name: &Name,
    told: impl Fn(&Name, &T, Timestamp) -> Value,
) -> Answer {
    let stored = get(api, name).await?;
    Ok(shown(stored.generation, &in_full(api, &stored, told)?))
}

/// What a record says, who wrote it, and when.
fn in_full<T: DeserializeOwned>(
    api: &Api,
    stored: &Stored,
    told: impl Fn(&Name, &T, Timestamp) -> Value,
) -> Result<Value, Problem> {
    let mut answer = told(&stored.name, &parsed(stored)?, api.now());
    answer["created_at"] = json!(Moment(stored.created_at));
    answer["updated_at"] = json!(Moment(stored.updated_at));
    answer["updated_by"] = json!(stored.updated_by);
    answer["generation"] = json!(stored.generation);
    Ok(answer)
}

/// Where a page begins, as the one before said it: the length of the domain, the domain and the name.
fn place(filter: &Filter, after: &str) -> Option<Name> {
    let (length, both) = after.split_once(':')?;
    let (domain, name) = both.split_at_checked(length.parse().ok()?)?;
    Some(Name::new(filter.kind, domain, name))
}

/// What a stored document says.
pub(super) fn parsed<T: DeserializeOwned>(stored: &Stored) -> Result<T, Problem> {
    serde_json::from_str(stored.document.as_deref().unwrap_or_default()).map_err(|error| {
        let kind = stored.name.kind;
        let detail = format!("the stored {kind} can't be read, a newer Tollgate may have written it: {error}");
        Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}

/// A document as it is stored. Texts, numbers and lists of them always have a form in JSON.
pub(super) fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap_or_default()
}

/// Refuses one more of what is looked at one by one.
pub(super) fn has_room(there: usize, most: usize, what: &str) -> Result<(), Problem> {
    if there < most {
        return Ok(());
    }
    let detail = format!("there are {there} {what}, and no more than {most} may be; delete those that are over");
    Err(Problem::new(http::StatusCode::UNPROCESSABLE_ENTITY, "too_many", detail))
}

/// What was answered when the same was sent before, under the same idempotency key. Whatever has become of the world since, it is
/// answered again.
pub(super) async fn again(api: &Api, asked: &Asked, body: &[u8]) -> Result<Option<Response>, Problem> {
    let Some(once) = asked.once(body, String::new()) else { return Ok(None) };
    match db(api)?.met(&once, api.now()).await {
        Ok(Some(Written::Before { generation, answer })) => Ok(Some(replayed(generation, answer))),
        Ok(_) => Ok(None),
        Err(why) => Err(NotWritten::Refused(why).into()),
    }
}

/// Forgets the idempotency key of what was not done after all, so that it can be sent again. If this fails too, a new key is needed.
pub(super) async fn forget(api: &Api, asked: &Asked, body: &[u8]) {
    if let (Some(once), Some(db)) = (asked.once(body, String::new()), api.db())
        && let Err(error) = db.forget(&once.key).await
    {
        tracing::debug!(%error, "an idempotency key could not be forgotten");
    }
}

/// Whether a record is as the asker takes for granted: for those who write nothing.
pub(super) fn holds(asked: &Asked, stored: Option<&Stored>) -> Result<(), Problem> {
    let now = stored.map(|stored| stored.generation);
    match (asked.expect, now) {
        (Expect::Absent, Some(now)) => Err(Problem::exists(now)),
        (Expect::Present, None) | (Expect::Generation(_), None) => Err(Problem::lost(None)),
        (Expect::Generation(generation), Some(now)) if generation != now => Err(Problem::lost(Some(now))),
        _ => Ok(()),
    }
}

/// Deletes a record, which must be there.
pub(super) async fn delete(api: &Api, asked: &Asked, name: Name, action: &'static str, answer: Value) -> Answer {
    let writing = Writing { asked, name, action, reason: String::new(), body: b"" };
    write(api, writing, |_| Ok(Made::deleted(answer.clone()))).await
}

/// Writes what `make` makes of what is there. Nobody's write gets lost: if somebody else was faster, it is made again of what they
/// wrote, or refused where the writer said what it had seen. What was written before under the same idempotency key is answered as
/// it was then.
pub(super) async fn write(
    api: &Api,
    writing: Writing<'_>,
    make: impl Fn(Option<&Stored>) -> Result<Made, Problem>,
) -> Answer {
    let Writing { asked, name, action, reason, body } = writing;
    let mut tries = TRIES;
    loop {
        let now = db(api)?.get(&name).await?;
        let Made { document, answer, beside, since } = make(now.as_ref())?;
        let answer = answer.to_string();
        let expect = match (asked.expect, &now) {
            (Expect::Anything, Some(now)) => Expect::Generation(now.generation),
            // One that is to be deleted must be there.
            (Expect::Anything, None) if document.is_none() => Expect::Present,
            (Expect::Anything, None) => Expect::Absent,
            (told, _) => told,
        };
        let change = Change { name: name.clone(), expect, document, action: action.to_owned(), reason: reason.clone() };
        let changes = std::iter::once(change).chain(beside).collect();
        let once = asked.once(body, answer.clone());
        let written = api.write_since(&asked.who.author(), changes, once, since).await;
        tries -= 1;
        match written {
            Ok(Written::Now { generation, .. }) => return Ok(told(Some(generation), answer)),
            Ok(Written::Before { generation, answer }) => return Ok(replayed(generation, answer)),
            Err(NotWritten::Refused(WriteError::Lost { now, .. })) => match (asked.expect, now) {
                (Expect::Anything, None) if expect == Expect::Present => return Err(missing(&name)),
                (Expect::Anything, _) if tries > 0 => {}
                (Expect::Absent, Some(now)) => return Err(Problem::exists(now)),
                (_, now) => return Err(Problem::lost(now)),
            },
            Err(NotWritten::Refused(WriteError::Moved { .. })) if tries > 0 => {
                api.catch_up(None).await?;
            }
            Err(why) => return Err(why.into()),
        }
    }
}

/// That it is not there.
pub(super) fn missing(name: &Name) -> Problem {
    Problem::not_found("not_found", format!("there is no {} {:?}", name.kind, name.name))
}

/// Whether an answer is one that was given before.
pub(super) fn is_replayed(response: &Response) -> bool {
    response.headers().contains_key(&REPLAYED)
}

/// An answer that was given before.
pub(super) fn replayed(generation: u64, answer: String) -> Response {
    let mut response = told(Some(generation), answer);
    response.headers_mut().insert(&REPLAYED, HeaderValue::from_static("true"));
    response
}

/// An answer with the generation of what it shows.
pub(super) fn shown(generation: u64, answer: &impl Serialize) -> Response {
    with_tag(Json(answer).into_response(), Some(generation))
}

fn told(generation: Option<u64>, answer: String) -> Response {
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
