//! `POST /v1/ratelimit/settle`: settles the receipt of a request that has ended.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use tollgate::{ReceiptError, RequestOutcome, SettleError, poll_once};
use tollgate_http::problem::Problem;
use tollgate_http::response::{self, with_jitter};
use tollgate_rules::quoted;

use super::check::{refuse, refuse_body};
use super::json_body::{self, FromMembers, count, string};
use super::prepared::PreparedResponse;
use super::{HttpState, problem};
use crate::body;
use crate::gate::SettleFailure;
use crate::receipts::{IssuedReceipt, OpenReceipt};

/// A settlement as its body describes it.
#[derive(Debug, PartialEq)]
pub(super) struct SettleRequest<'a> {
    receipt: Cow<'a, str>,
    outcome: RequestOutcome,
    cost: Option<u64>,
}

/// The members of a body.
#[derive(Default)]
pub(super) struct SettleMembers<'a> {
    receipt: Option<Cow<'a, str>>,
    outcome: Option<RequestOutcome>,
    cost: Option<u64>,
}

/// Settles the receipt in a body.
pub(super) async fn serve<B: Body<Data = Bytes> + Unpin>(
    state: &HttpState,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    match body::collect(body, state.timeouts.body).await {
        // Boxed, so that the future of a request stays small for stores that never wait.
        Ok(bytes) if state.gate.waits() => Box::pin(settle(state, headers, &bytes)).await.into_response(),
        Ok(bytes) => settle_at_once(state, headers, &bytes).into_response(),
        Err(error) => refuse_body(state, &error),
    }
}

/// Settles on a store that never waits.
pub(super) fn settle_at_once(state: &HttpState, headers: &HeaderMap, body: &[u8]) -> PreparedResponse {
    poll_once(settle(state, headers, body)).unwrap_or_else(|| problem::no_answer().into_response().into())
}

async fn settle(state: &HttpState, headers: &HeaderMap, bytes: &[u8]) -> PreparedResponse {
    let (receipt, outcome, cost) = match open(state, bytes) {
        Ok(opened) => opened,
        Err(problem) => return refuse(state, problem).into(),
    };
    let timeout = state.gate.http_timeout(headers);
    let settled = state.gate.settle(&receipt.receipt, outcome, cost, headers, timeout).await;
    match settled {
        Ok(settled) => {
            let renewed = state.receipts.settled(&receipt, outcome, &settled);
            response::respond_settled(&settled, outcome, renewed.as_ref().map(IssuedReceipt::signed)).into()
        }
        Err(failure) => respond_unsettled(state, failure).into(),
    }
}

/// Parses the body and verifies its receipt.
fn open(state: &HttpState, bytes: &[u8]) -> Result<(OpenReceipt, RequestOutcome, Option<u64>), Problem> {
    let SettleRequest { receipt, outcome, cost } = SettleRequest::parse(bytes)?;
    let receipt = state.receipts.open(&receipt).map_err(|error| {
        let code = match error {
            ReceiptError::Malformed => "malformed_receipt",
            ReceiptError::Foreign => "foreign_receipt",
            ReceiptError::Forged => "forged_receipt",
            ReceiptError::Expired => "expired_receipt",
        };
        Problem::bad_request(code, error.to_string())
    })?;
    Ok((receipt, outcome, cost))
}

fn respond_unsettled(state: &HttpState, failure: SettleFailure) -> Response<Full<Bytes>> {
    state.receipts.refused(failure.name());
    let SettleFailure::Refused(error) = failure else {
        let detail = "the server is overloaded, and the receipt was not settled; retry: settling the same receipt twice has \
                      no further effect";
        return retry_later(state, failure, detail.to_owned());
    };
    match error {
        SettleError::Pending => retry_later(state, failure, error.to_string()),
        SettleError::AlreadySettled => {
            let detail = format!("{error}; the first settlement stands, and nothing was changed");
            refuse(state, Problem::new(StatusCode::CONFLICT, failure.name(), detail))
        }
        SettleError::CostOfRunning | SettleError::CostTooLarge | SettleError::UnknownRegion => {
            refuse(state, Problem::bad_request(failure.name(), error.to_string()))
        }
    }
}

/// A 503 with `Retry-After`, so that the settlement is not lost.
fn retry_later(state: &HttpState, failure: SettleFailure, detail: String) -> Response<Full<Bytes>> {
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, failure.name(), detail).into_response();
    let wait = with_jitter(1, state.style.jitter, |most| fastrand::u64(0..=most));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
    response
}

impl<'a> SettleRequest<'a> {
    /// Parses a body, or explains why it is invalid.
    pub(super) fn parse(body: &'a [u8]) -> Result<SettleRequest<'a>, Problem> {
        json_body::parse(body)
    }
}

impl<'de> FromMembers<'de> for SettleRequest<'de> {
    const EXAMPLE: &'static str = r#"{"receipt": "tgr_…", "outcome": "ok"}"#;

    type Members = SettleMembers<'de>;

    fn read_member<M: MapAccess<'de>>(
        members: &mut SettleMembers<'de>,
        name: &Cow<'de, str>,
        map: &mut M,
    ) -> Result<bool, M::Error> {
        Ok(match &**name {
            "receipt" => members.receipt.replace(string(map.next_value()?, "receipt")?).is_none(),
            "outcome" => members.outcome.replace(parse_outcome(map.next_value()?)?).is_none(),
            "cost" => members.cost.replace(count(map.next_value()?, "cost")?).is_none(),
            other => {
                return Err(serde::de::Error::custom(format_args!(
                    "unknown member {}; expected `receipt`, `outcome` or `cost`",
                    quoted(other)
                )));
            }
        })
    }

    fn from_members<E: serde::de::Error>(members: SettleMembers<'de>) -> Result<SettleRequest<'de>, E> {
        let SettleMembers { receipt, outcome, cost } = members;
        let receipt =
            receipt.ok_or_else(|| E::custom("`receipt` is missing: send the one from the check's response"))?;
        Ok(SettleRequest { receipt, outcome: outcome.unwrap_or(RequestOutcome::Ok), cost })
    }
}

fn parse_outcome<E: serde::de::Error>(raw: &RawValue) -> Result<RequestOutcome, E> {
    let name = string(raw, "outcome")?;
    let outcomes = [RequestOutcome::Ok, RequestOutcome::Failed, RequestOutcome::Running];
    outcomes.into_iter().find(|outcome| outcome.name() == name).ok_or_else(|| {
        E::custom(format_args!("`outcome` must be \"ok\", \"failed\" or \"running\", not {}", quoted(&name)))
    })
}

/// Settle the receipt of a request
///
/// Releases the slots that the request holds. `failed` refunds rules with `refund: on_failure`; `cost` is the real cost for rules
/// with `settle: true`. `running` extends the slots and returns a renewed receipt. The operation is idempotent: a repetition has
/// the same response, with `Idempotent-Replayed: true`, and changes nothing.
#[utoipa::path(
    post, path = "/v1/ratelimit/settle", operation_id = "settle", request_body = super::description::SettleBody,
    responses(
        (status = 200, body = super::description::SettledBody, description = "Settled, or extended"),
        (status = 202, body = super::description::SettledBody, description = "The store is unavailable; the settlement is deferred"),
        (status = 400, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body is invalid, or the receipt can't be settled: `malformed_receipt`, `foreign_receipt`, `forged_receipt`, `expired_receipt`"),
        (status = 408, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body did not arrive in time"),
        (status = 409, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The receipt was settled before, with another outcome or cost"),
        (status = 413, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The body is longer than 512 KiB"),
        (status = 503, body = super::description::ProblemBody, content_type = "application/problem+json", description = "The server is overloaded (`too_busy`), or another request is settling the receipt (`pending`): retry"),
    )
)]
pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> axum::response::Response {
    serve(&state, &headers, body).await.map(axum::body::Body::new)
}
