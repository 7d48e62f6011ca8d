//! Changes of this server that do not wait for the store of record: they are made first and then written to the audit log.

use axum::response::Response;
use serde_json::{Value, json};
use tollgate_control::{Change, Precondition, RecordName};
use tollgate_records::RecordKind;
use tollgate_records::documents::FieldFaults;

use super::observability::AdminState;
use super::{ApiProblem, RequestContext, expiry, records};

/// An entry of the audit log about this server.
pub(super) struct AuditNote {
    pub(super) kind: RecordKind,
    pub(super) action: &'static str,
    pub(super) reason: String,
    pub(super) document: Value,
}

/// The reason of a change, if it and everything else is right.
pub(super) fn checked_reason(reason: Option<String>, mut faults: FieldFaults) -> Result<String, ApiProblem> {
    let reason = reason.unwrap_or_default();
    expiry::check_reason(&reason, &mut faults);
    faults.into_result(reason).map_err(ApiProblem::invalid)
}

/// Writes a change that was made to the audit log. The response has the answer, and whether it is written.
pub(super) async fn respond(
    state: &AdminState,
    context: &RequestContext,
    sent: &[u8],
    note: AuditNote,
    mut answer: Value,
) -> Response {
    let AuditNote { kind, action, reason, document } = note;
    let change = Change {
        name: RecordName::new(kind, "", state.observability.name.as_str()),
        expect: Precondition::Any,
        document: Some(document.to_string()),
        action: action.to_owned(),
        reason,
    };
    answer["audited"] = json!(true);
    let once = context.once(sent, answer.to_string());
    let author = context.principal.author();
    let written = tokio::time::timeout(records::URGENT_TIMEOUT, state.control.write(&author, vec![change], once)).await;
    let why = match written {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(ApiProblem::from(error).detail),
        Err(_) => Some("the store of record did not answer".to_owned()),
    };
    if let Some(why) = why {
        tracing::warn!(action, by = author.name, from = author.from, %document, %why, "a change of this server is not in the audit log");
        answer["audited"] = json!(false);
    }
    records::json_response(None, answer.to_string())
}
