//! Records, read and written: what all kinds of them have in common.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{ETAG, HeaderName};
use serde::Serialize;
use tollgate_control::{Change, Db, Expect, Name, Stored, WriteError, Written};

use super::{Api, Asked, Problem};
use crate::control::NotWritten;

static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How often a write is tried whose document depends on what was there.
const TRIES: usize = 100;

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
    pub(super) answer: serde_json::Value,
    /// Other records that are written with it.
    pub(super) beside: Vec<Change>,
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

/// Writes what `make` makes of what is there. Nobody's write gets lost: if somebody else was faster, it is made again of what they
/// wrote, or refused where the writer said what it had seen. What was written before under the same idempotency key is answered as
/// it was then.
pub(super) async fn write(
    api: &Api,
    writing: Writing<'_>,
    make: impl Fn(Option<&Stored>) -> Result<Made, Problem>,
) -> Result<Response, Problem> {
    let Writing { asked, name, action, reason, body } = writing;
    let mut tries = TRIES;
    loop {
        let now = db(api)?.get(&name).await?;
        let Made { document, answer, beside } = make(now.as_ref())?;
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
        let written = api.write(&asked.who.author(), changes, asked.once(body, answer.clone())).await;
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
            Err(why) => return Err(why.into()),
        }
    }
}

fn missing(name: &Name) -> Problem {
    Problem::not_found("not_found", format!("there is no {} {:?}", name.kind, name.name))
}

/// Whether an answer is one that was given before.
pub(super) fn is_replayed(response: &Response) -> bool {
    response.headers().contains_key(&REPLAYED)
}

fn replayed(generation: u64, answer: String) -> Response {
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
