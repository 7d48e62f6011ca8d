//! Rule files that guardrails hold.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate_control::{Change, Precondition, RecordName};
use tollgate_records::documents::{FieldFaults, FilesDocument, FilesState};
use tollgate_records::{RecordKind, Rfc3339};

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::extract::{EmptyQuery, PathParams, Query};
use super::{Api, ApiProblem, ApiResult, RequestContext, expiry, records};
use crate::scopes::AccessScope;

/// A release.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    /// Why the files may be put in force.
    #[serde(default)]
    reason: String,
}

/// How long a released version stays released.
const RELEASE_LIFETIME: Span = Span::from_secs(30 * 24 * 3_600);
/// The digits of a version.
const VERSION_DIGITS: usize = 16;

/// Show the rule files that this server holds
#[utoipa::path(
    get, path = "/admin/v1/files", operation_id = "files_show", tag = "files",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let held = api.rules().held();
    Ok(Json::<Value>(json!({"held": held.as_deref()})).into_response())
}

/// Release a version of the rule files: all servers that hold it put it in force
#[utoipa::path(
    post, path = "/admin/v1/files/{version}/release", operation_id = "files_release", tag = "files", request_body = ReleaseBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(super) async fn release(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(version): PathParams<String>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
    sent: RequestBody,
) -> ApiResult {
    context.require(AccessScope::Rules)?;
    records::db(&api)?;
    let ReleaseBody { reason } = body::parse(&sent.read().await?)?;
    let mut faults = FieldFaults::default();
    expiry::check_reason(&reason, &mut faults);
    if version.len() != VERSION_DIGITS || !version.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        faults.add(
            "version",
            format!("it has {VERSION_DIGITS} hexadecimal digits; the log, /readyz and `tollgate rule files` show it"),
        );
    }
    faults.into_result(()).map_err(ApiProblem::invalid)?;
    let expires_at = Rfc3339(api.now().after(RELEASE_LIFETIME));
    let document = FilesDocument { state: FilesState::Released, reason: reason.clone(), expires_at };
    let change = Change {
        name: RecordName::new(RecordKind::Files, "", &version),
        expect: Precondition::Any,
        document: Some(records::to_text(&document)),
        action: "files.release".to_owned(),
        reason,
    };
    api.write(&context.principal.author(), vec![change], None).await?;
    Ok(Json::<Value>(json!({"version": version, "released": true})).into_response())
}
