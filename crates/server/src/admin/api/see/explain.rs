//! What every rule makes of a request, as on the data plane: for operators who try one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;

use super::See;
use crate::admin::api::{Answer, Asked};
use crate::admin::who::Scope;
use crate::wire::http::explain;

/// How long the body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// What does every rule make of this request? Nothing is consumed
///
/// Body and answer are those of `POST /v1/ratelimit/explain` on the data plane.
#[utoipa::path(
    post, path = "/admin/v1/explain", operation_id = "explain", tag = "seeing", request_body = Object,
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn ask(State(see): State<Arc<See>>, asked: Asked, body: Body) -> Answer {
    asked.may(Scope::Read)?;
    Ok(explain::answer(see.limiter(), body, PATIENCE).await)
}
