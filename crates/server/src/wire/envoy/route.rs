//! `POST /json`: the same call for those who have no gRPC.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use http::{HeaderMap, StatusCode, header};

use super::{Envoy, Refusal, json};

/// The route, for the HTTP listener.
pub(crate) fn routes(envoy: Arc<Envoy>) -> Router {
    Router::new().route("/json", post(answer)).with_state(envoy)
}

/// 200 or 429 with the message; 400 with a sentence for a body that is no request.
async fn answer(State(envoy): State<Arc<Envoy>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match json::read(&body) {
        Ok(request) => request,
        Err(error) => return refused(format!("the body is not a RateLimitRequest: {error}")),
    };
    match envoy.should_rate_limit(&request, &headers).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            (status, [(header::CONTENT_TYPE, "application/json")], json::write(&response)).into_response()
        }
        Err(Refusal(reason)) => refused(reason),
    }
}

fn refused(reason: String) -> Response {
    (StatusCode::BAD_REQUEST, reason + "\n").into_response()
}
