//! `POST /v1/ratelimit/settle`: how did the request end for which there is a receipt?

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tollgate::told::{self, later};
use tollgate::{Ending, ReceiptError, SettleError, Settled, now};
use tollgate_rules::quoted;

use super::asked::{Name, count, text, twice};
use super::check::refuse;
use super::problem::Problem;
use super::{Wire, body};
use crate::gate::{NotSettled, patience};
use crate::receipts::{Opened, Signed};

/// What a client tells.
#[derive(Debug, PartialEq)]
pub(super) struct Told<'a> {
    receipt: Cow<'a, str>,
    ending: Ending,
    cost: Option<u64>,
}

const EXAMPLE: &str = r#"{"receipt": "tgr_…", "outcome": "ok"}"#;

/// Settles the receipt in a body.
pub(super) async fn answer<B: Body<Data = Bytes> + Unpin>(
    wire: &Wire,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    match body::whole(body, wire.times.body).await {
        // Boxed, so that the future of a request is as small as if no store made wait.
        Ok(bytes) if wire.gate.waits() => Box::pin(wait(wire, headers, bytes)).await,
        Ok(bytes) => settle(wire, headers, &bytes),
        Err(problem) => refuse(wire, problem),
    }
}

/// On a store that never makes wait.
fn settle(wire: &Wire, headers: &HeaderMap, bytes: &[u8]) -> Response<Full<Bytes>> {
    let (opened, ending, cost) = match open(wire, bytes) {
        Ok(opened) => opened,
        Err(problem) => return refuse(wire, problem),
    };
    let settled = now(wire.gate.settle(&opened.receipt, ending, cost, headers, None));
    settled.map_or_else(|| Problem::no_answer().into_answer(), |settled| tell(wire, &opened, ending, settled))
}

/// On one that does.
async fn wait(wire: &Wire, headers: &HeaderMap, bytes: Bytes) -> Response<Full<Bytes>> {
    let (opened, ending, cost) = match open(wire, &bytes) {
        Ok(opened) => opened,
        Err(problem) => return refuse(wire, problem),
    };
    let settled = wire.gate.settle(&opened.receipt, ending, cost, headers, patience::of_http(headers)).await;
    tell(wire, &opened, ending, settled)
}

/// What is told, and of which request.
fn open(wire: &Wire, bytes: &[u8]) -> Result<(Opened, Ending, Option<u64>), Problem> {
    let Told { receipt, ending, cost } = Told::read(bytes)?;
    let opened = wire.receipts.open(&receipt).map_err(|error| {
        let code = match error {
            ReceiptError::Malformed => "malformed_receipt",
            ReceiptError::Foreign => "foreign_receipt",
            ReceiptError::Forged => "forged_receipt",
            ReceiptError::Expired => "expired_receipt",
        };
        Problem::bad_request(code, error.to_string())
    })?;
    Ok((opened, ending, cost))
}

fn tell(wire: &Wire, opened: &Opened, ending: Ending, settled: Result<Settled, NotSettled>) -> Response<Full<Bytes>> {
    let why = match settled {
        Ok(settled) => {
            let renewed = wire.receipts.settled(opened, ending, &settled);
            return told::settled(&settled, ending, renewed.as_ref().map(Signed::carried));
        }
        Err(why) => why,
    };
    wire.receipts.refused(why.name());
    let NotSettled::Refused(error) = why else {
        let detail = "the server has too much to do, and the receipt was not settled; settle it again: twice is once";
        return not_now(wire, why, detail.to_owned());
    };
    match error {
        SettleError::Pending => not_now(wire, why, error.to_string()),
        SettleError::AlreadySettled => {
            let detail = format!("{error}; that holds, and nothing was changed");
            refuse(wire, Problem::new(StatusCode::CONFLICT, why.name(), detail))
        }
        SettleError::CostOfRunning | SettleError::CostTooLarge => {
            refuse(wire, Problem::bad_request(why.name(), error.to_string()))
        }
    }
}

/// To be tried again: it must not be lost in silence.
fn not_now(wire: &Wire, why: NotSettled, detail: String) -> Response<Full<Bytes>> {
    let mut answer = Problem::new(StatusCode::SERVICE_UNAVAILABLE, why.name(), detail).into_answer();
    let wait = later(1, wire.told.jitter, |most| fastrand::u64(0..=most));
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
    answer
}

impl<'a> Told<'a> {
    /// Reads a body, or says why it can't be.
    pub(super) fn read(body: &'a [u8]) -> Result<Told<'a>, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            let detail = format!("the body is empty; send a JSON object such as {EXAMPLE}");
            return Err(Problem::bad_request("empty_body", detail));
        }
        serde_json::from_slice(body).map_err(|error| {
            let code = if error.is_data() { "bad_member" } else { "bad_json" };
            Problem::bad_request(code, format!("the body can't be read: {error}; send one such as {EXAMPLE}"))
        })
    }
}

impl<'de> Deserialize<'de> for Told<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Told<'de>, D::Error> {
        deserializer.deserialize_map(TellingReader)
    }
}

struct TellingReader;

impl<'de> Visitor<'de> for TellingReader {
    type Value = Told<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Told<'de>, M::Error> {
        let (mut receipt, mut ending, mut cost) = (None, None, None);
        while let Some(Name(name)) = map.next_key()? {
            let is_new = match &*name {
                "receipt" => receipt.replace(own_text(map.next_value()?, "receipt")?).is_none(),
                "outcome" => ending.replace(outcome(map.next_value()?)?).is_none(),
                "cost" => cost.replace(count(map.next_value()?, "cost")?).is_none(),
                other => {
                    return Err(M::Error::custom(format_args!(
                        "{} is no member of it; there are `receipt`, `outcome` and `cost`",
                        quoted(other)
                    )));
                }
            };
            if !is_new {
                return Err(twice(&name));
            }
        }
        let receipt = receipt.ok_or_else(|| M::Error::custom("it has no `receipt`: that of the check's answer"))?;
        Ok(Told { receipt, ending: ending.unwrap_or(Ending::Ok), cost })
    }
}

/// A text, and nothing that could be read as one.
fn own_text<'a, E: serde::de::Error>(raw: &'a RawValue, member: &str) -> Result<Cow<'a, str>, E> {
    if raw.get().starts_with('"') {
        return text(raw, member);
    }
    Err(E::custom(format_args!("`{member}` must be a text, not {}", quoted(raw.get()))))
}

fn outcome<E: serde::de::Error>(raw: &RawValue) -> Result<Ending, E> {
    let word = own_text(raw, "outcome")?;
    let known = [Ending::Ok, Ending::Failed, Ending::Running];
    known.into_iter().find(|ending| ending.name() == word).ok_or_else(|| {
        E::custom(format_args!("`outcome` must be \"ok\", \"failed\" or \"running\", not {}", quoted(&word)))
    })
}

/// How did the request end for which there is a receipt?
///
/// What it holds is released. `failed` gives back what rules with `refund: on_failure` took; `cost` is the real cost for rules with
/// `settle: true`. `running` holds what it holds for longer, and answers a receipt that lasts from now. Twice is once: the same again
/// is answered alike, with `Idempotent-Replayed: true`, and changes nothing.
#[utoipa::path(
    post, path = "/v1/ratelimit/settle", operation_id = "settle", request_body = super::openapi::SettleBody,
    responses(
        (status = 200, body = super::openapi::SettledBody, description = "It is settled, or goes on"),
        (status = 202, body = super::openapi::SettledBody, description = "The store is away, and is told when it is back"),
        (status = 400, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "It can't be read, or it is no receipt that can be settled: `malformed_receipt`, `foreign_receipt`, `forged_receipt`, `expired_receipt`"),
        (status = 408, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 409, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "It was settled before, with another outcome or cost"),
        (status = 413, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 64 KiB"),
        (status = 503, body = super::openapi::ProblemBody, content_type = "application/problem+json", description = "The server has too much to do (`too_busy`), or somebody else is settling it (`pending`): settle it again"),
    )
)]
pub(super) async fn handle(
    State(wire): State<Arc<Wire>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> axum::response::Response {
    answer(&wire, &headers, body).await.map(axum::body::Body::new)
}
