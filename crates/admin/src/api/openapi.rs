//! `GET /admin/openapi.json`: the OpenAPI document of the admin API.
//!
//! The document is embedded. Tests generate it from the annotations of the handlers and compare.

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::{Api, ApiResult};

const DOCUMENT: &str = include_str!("../../../../docs/openapi-admin.json");

/// Show this document
#[utoipa::path(get, path = "/admin/openapi.json", operation_id = "openapi", responses((status = 200, body = Object)))]
pub(super) async fn show(State(_): State<Api>) -> ApiResult {
    Ok(([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response())
}
