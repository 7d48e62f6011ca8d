//! Explains a request without consuming units, as on the data plane.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;

use super::AdminState;
use crate::api::{ApiResult, RequestContext};
use crate::scopes::AccessScope;
use tollgate_wire::http::explain;

/// Time limit for the body to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Explain what each rule would decide about a request. Nothing is consumed
///
/// Request and response are those of `POST /v1/ratelimit/explain` on the data plane.
#[utoipa::path(
    post, path = "/admin/v1/explain", operation_id = "explain", tag = "seeing", request_body = Object,
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn explain_request(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    body: Body,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    Ok(explain::respond(state.limiter(), body, READ_TIMEOUT).await)
}
