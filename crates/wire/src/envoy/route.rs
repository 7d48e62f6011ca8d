//! `POST /json`: the same call without gRPC.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{Envoy, InvalidRequest, json};
use crate::gate::timeout;
use tollgate_net::timeout;

/// The maximum length of a body.
const MAX_BODY_BYTES: usize = 64 * 1024;

#[derive(Clone)]
struct JsonRoute {
    envoy: Arc<Envoy>,
    /// The timeout of a body's arrival.
    body_timeout: Duration,
}

/// The route, for the HTTP listener.
pub fn routes(envoy: Arc<Envoy>, body_timeout: Duration) -> Router {
    Router::new().route("/json", post(answer)).with_state(JsonRoute { envoy, body_timeout })
}

/// The route's part of the OpenAPI document.
#[cfg(test)]
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    #[derive(utoipa::OpenApi)]
    #[openapi(paths(answer))]
    struct RouteDocument;

    <RouteDocument as utoipa::OpenApi>::openapi()
}

/// Envoy's `ShouldRateLimit` as JSON, by protobuf's JSON mapping
#[utoipa::path(
    post, path = "/json", operation_id = "should_rate_limit", request_body = json::JsonRequest,
    responses(
        (status = 200, body = Object, description = "A RateLimitResponse: the request passes"),
        (status = 400, body = String, content_type = "text/plain", description = "The body is not a RateLimitRequest"),
        (status = 408, body = String, content_type = "text/plain", description = "The body did not arrive in time"),
        (status = 413, body = String, content_type = "text/plain", description = "The body is longer than 64 KiB"),
        (status = 429, body = Object, description = "A RateLimitResponse: the request is refused"),
    )
)]
async fn answer(State(route): State<JsonRoute>, headers: HeaderMap, body: Body) -> Response {
    match decide(&route, &headers, body).await {
        Ok((status, message)) => (status, [(header::CONTENT_TYPE, "application/json")], message).into_response(),
        Err((status, reason)) => {
            route.envoy.gate().metrics().refused_request();
            (status, reason + "\n").into_response()
        }
    }
}

async fn decide(
    route: &JsonRoute,
    headers: &HeaderMap,
    body: Body,
) -> Result<(StatusCode, String), (StatusCode, String)> {
    let body = read(body, route.body_timeout).await?;
    let bad = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let request = json::read(&body).map_err(|error| bad(format!("the body is not a RateLimitRequest: {error}")))?;
    let decided = route.envoy.should_rate_limit(&request, headers, timeout::from_http(headers)).await;
    let response = decided.map_err(|InvalidRequest(reason)| bad(reason))?;
    let status = match response.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    Ok((status, json::write(&response)))
}

async fn read(body: Body, body_timeout: Duration) -> Result<Bytes, (StatusCode, String)> {
    match timeout(body_timeout, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Some(Ok(whole)) => Ok(whole.to_bytes()),
        Some(Err(_)) => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is incomplete, or longer than {MAX_BODY_BYTES} bytes"),
        )),
        None => Err((StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {body_timeout:?}"))),
    }
}
