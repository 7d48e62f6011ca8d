//! `POST /v1/ratelimit/check`: may this request pass?

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::Full;

use super::answer::{self, Detail};
use super::asked::Asked;
use super::problem::Problem;
use super::{Wire, body};

/// Decides the request that a body describes.
pub(super) async fn answer<B: Body<Data = Bytes> + Unpin>(
    wire: &Wire,
    headers: &HeaderMap,
    body: B,
) -> Response<Full<Bytes>> {
    let bytes = match body::whole(body, wire.times.body).await {
        Ok(bytes) => bytes,
        Err(problem) => return refuse(wire, problem),
    };
    let asked = match Asked::read(&bytes) {
        Ok(asked) => asked,
        Err(problem) => return refuse(wire, problem),
    };
    let pairs = asked.pairs();
    let descriptors = asked.descriptors(&pairs);
    let request = asked.request(&descriptors);
    match wire.gate.check(&request, headers).await {
        Ok(decision) => answer::write(&wire.told, &request, &decision, wire.gate.passes(&decision), Detail::Whole),
        Err(error) => Problem::of_request(&error, request.domain, &wire.gate.limiter().rules()).into_answer(),
    }
}

/// The same where axum asks.
pub(super) async fn handle(
    State(wire): State<Arc<Wire>>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> axum::response::Response {
    answer(&wire, &headers, body).await.map(axum::body::Body::new)
}

/// A request that did not get as far as the gate, which counts the others.
fn refuse(wire: &Wire, problem: Problem) -> Response<Full<Bytes>> {
    wire.gate.metrics().refused_request();
    problem.into_answer()
}
