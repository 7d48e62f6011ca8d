//! `POST /json`: the same call without gRPC.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode, header};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{Envoy, InvalidRequest, json};
use crate::body::{self, BodyError};
use crate::gate::timeout;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_telemetry::metrics::Repair;

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
        (status = 429, body = Object, description = "A RateLimitResponse: the request is refused"),
    )
)]
async fn answer(State(route): State<JsonRoute>, headers: HeaderMap, body: Body) -> Response {
    let bytes = match body::collect(body, route.body_timeout).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let mut response = match error {
                BodyError::TooLarge { .. } => respond(&route.envoy.undecided(None, 0)),
                _ => refuse(&route.envoy, error.problem().status, error.problem().detail),
            };
            error.announce_end(&mut response);
            return response;
        }
    };
    match decide(&route.envoy, &headers, &bytes).await {
        Ok(message) => respond(&message),
        Err(reason) => refuse(&route.envoy, StatusCode::BAD_REQUEST, reason),
    }
}

async fn decide(envoy: &Envoy, headers: &HeaderMap, body: &[u8]) -> Result<RateLimitResponse, String> {
    let (request, has_bad_cost) =
        json::read(body).map_err(|error| format!("the body is not a RateLimitRequest: {error}"))?;
    if has_bad_cost {
        envoy.gate().metrics().repaired(Repair::BadCost);
    }
    let decided = envoy.should_rate_limit(&request, headers, timeout::from_http(headers)).await;
    // Over /json, clients get codes and statuses.
    decided.map(|response| response.message).map_err(|InvalidRequest(reason)| reason)
}

fn respond(response: &RateLimitResponse) -> Response {
    let status = match response.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    (status, [(header::CONTENT_TYPE, "application/json")], json::write(response)).into_response()
}

fn refuse(envoy: &Envoy, status: StatusCode, reason: String) -> Response {
    envoy.gate().metrics().refused_request();
    (status, reason + "\n").into_response()
}
