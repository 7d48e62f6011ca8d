//! `POST /json`: the same call for those who have no gRPC.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use utoipa::OpenApi;

use super::{Envoy, Refusal, json};
use crate::gate::patience;
use crate::net::within;

/// The longest body.
const MOST_BYTES: usize = 64 * 1024;

#[derive(Clone)]
struct Route {
    envoy: Arc<Envoy>,
    /// How long a body may take to arrive.
    patience: Duration,
}

#[derive(OpenApi)]
#[openapi(paths(answer))]
struct Description;

/// The route, for the HTTP listener.
pub(crate) fn routes(envoy: Arc<Envoy>, patience: Duration) -> Router {
    Router::new().route("/json", post(answer)).with_state(Route { envoy, patience })
}

/// What the listener's OpenAPI document says of it.
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// Envoy's `ShouldRateLimit` as JSON, by protobuf's rules for it
#[utoipa::path(
    post, path = "/json", operation_id = "should_rate_limit", request_body = json::Request,
    responses(
        (status = 200, body = Object, description = "A RateLimitResponse: it passes"),
        (status = 400, body = String, content_type = "text/plain", description = "The body is not a RateLimitRequest"),
        (status = 408, body = String, content_type = "text/plain", description = "The body did not arrive in time"),
        (status = 413, body = String, content_type = "text/plain", description = "The body is longer than 64 KiB"),
        (status = 429, body = Object, description = "A RateLimitResponse: it does not pass"),
    )
)]
async fn answer(State(route): State<Route>, headers: HeaderMap, body: Body) -> Response {
    match decide(&route, &headers, body).await {
        Ok((status, message)) => (status, [(header::CONTENT_TYPE, "application/json")], message).into_response(),
        Err((status, reason)) => {
            route.envoy.gate().metrics().refused_request();
            (status, reason + "\n").into_response()
        }
    }
}

async fn decide(route: &Route, headers: &HeaderMap, body: Body) -> Result<(StatusCode, String), (StatusCode, String)> {
    let body = read(body, route.patience).await?;
    let bad = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let request = json::read(&body).map_err(|error| bad(format!("the body is not a RateLimitRequest: {error}")))?;
    let asked = route.envoy.should_rate_limit(&request, headers, patience::of_http(headers)).await;
    let response = asked.map_err(|Refusal(reason)| bad(reason))?;
    let status = match response.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    Ok((status, json::write(&response)))
}

async fn read(body: Body, patience: Duration) -> Result<Bytes, (StatusCode, String)> {
    match within(patience, Limited::new(body, MOST_BYTES).collect()).await {
        Some(Ok(whole)) => Ok(whole.to_bytes()),
        Some(Err(_)) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the body is cut off, or longer than {MOST_BYTES} bytes")))
        }
        None => Err((StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {patience:?}"))),
    }
}
