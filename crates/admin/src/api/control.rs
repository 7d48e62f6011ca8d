//! The store of record itself: what is in force of it, and the confirmation of another one.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::FeedPosition;
use tollgate_records::documents::FieldFaults;

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::extract::{EmptyQuery, Query};
use super::{Api, ApiProblem, ApiResult, RequestContext, records};
use crate::scopes::AccessScope;
use crate::store_of_record::{ConfirmError, ControlWriteError};

/// A confirmation.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfirmBody {
    /// The identity of the database, as shown.
    identity: String,
    /// Why its state may replace the known one.
    #[serde(default)]
    reason: String,
}

/// Show the state of the store of record
#[utoipa::path(
    get, path = "/admin/v1/control", operation_id = "control_show", tag = "control",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    Ok(Json(to_json(&api)).into_response())
}

/// Accept a store of record that is empty, older or another one than the known one, on all servers
#[utoipa::path(
    post, path = "/admin/v1/control/confirm", operation_id = "control_confirm", tag = "control", request_body = ConfirmBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn confirm(State(api): State<Api>, context: RequestContext, sent: RequestBody) -> ApiResult {
    // It may bring other tokens, or none.
    AccessScope::ADMIN.into_iter().try_for_each(|scope| context.require(scope))?;
    records::db(&api)?;
    let ConfirmBody { identity, reason } = body::parse(&sent.read().await?)?;
    let mut faults = FieldFaults::default();
    faults.check_reason(&reason);
    faults.into_result(()).map_err(ApiProblem::invalid)?;
    let conflict = |detail: String| ApiProblem::new(StatusCode::CONFLICT, "nothing_to_confirm", detail);
    match api.confirm(&context.principal.author(), &identity, reason).await {
        Ok(()) => Ok(Json(to_json(&api)).into_response()),
        Err(ConfirmError::NothingToConfirm) => {
            Err(conflict("the store of record is the known one; there is nothing to confirm".to_owned()))
        }
        Err(ConfirmError::OtherIdentity(found)) => Err(conflict(format!(
            "the identity of the store of record is {found}; look at what differs, and confirm that one"
        ))),
        Err(ConfirmError::Failed(error)) => Err(ControlWriteError::Refused(error).into()),
    }
}

fn to_json(api: &Api) -> Value {
    let position = |at: &FeedPosition| json!({"identity": at.identity, "generation": at.generation});
    let unconfirmed = api.unconfirmed().map(
        |waiting| json!({"known": position(&waiting.known), "found": position(&waiting.found), "differences": waiting.differences}),
    );
    let in_force = api.feed().at();
    json!({"kind": api.kind(), "in_force": position(&in_force), "unconfirmed": unconfirmed})
}
