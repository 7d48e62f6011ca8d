//! Error responses of the admin listener: `application/problem+json` (RFC 9457), with all faults of a request.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::Value;
use tollgate::RuleProblem;
use tollgate_control::{DbError, WriteError};
use tollgate_http::problem::Problem;
use tollgate_records::FieldFault;

use crate::store_of_record::ControlWriteError;

/// A failed request.
#[derive(Debug)]
pub(crate) struct ApiProblem {
    pub status: StatusCode,
    /// A stable code for programs.
    pub code: &'static str,
    /// What is wrong, and how to fix it.
    pub detail: String,
    /// All faults of the body.
    pub faults: Vec<FieldFault>,
    /// Further members.
    pub members: Vec<(&'static str, Value)>,
}

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> ApiProblem {
        ApiProblem { status, code, detail: detail.into(), faults: Vec::new(), members: Vec::new() }
    }

    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> ApiProblem {
        ApiProblem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn not_found(code: &'static str, detail: impl Into<String>) -> ApiProblem {
        ApiProblem::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// An invalid body.
    pub(crate) fn invalid(faults: Vec<FieldFault>) -> ApiProblem {
        let detail = match &faults[..] {
            [one] => one.to_string(),
            many => format!("the request has {} faults", many.len()),
        };
        ApiProblem { faults, ..ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
    }

    /// The precondition failed: another writer changed the record.
    pub(crate) fn lost(now: Option<u64>) -> ApiProblem {
        let detail = match now {
            Some(now) => format!("the record is at \"{now}\" now; read it again, and use If-Match: \"{now}\""),
            None => "the record does not exist; omit If-Match to create it".to_owned(),
        };
        ApiProblem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail)
    }

    /// The record exists, contrary to the precondition.
    pub(crate) fn exists(now: u64) -> ApiProblem {
        let detail = format!("the record exists already, at \"{now}\"");
        ApiProblem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail)
    }

    /// There is no store of record.
    pub(crate) fn off() -> ApiProblem {
        let detail = "this server has no store of record; start it with a data directory (--data), or with --control";
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "control_off", detail)
    }
}

/// A problem of rules as a fault of a body.
pub(crate) fn rule_fault(problem: &RuleProblem) -> FieldFault {
    FieldFault { at: problem.at(), what: format!("{}; {}", problem.message, problem.remedy) }
}

impl From<DbError> for ApiProblem {
    fn from(error: DbError) -> ApiProblem {
        match error {
            DbError::Invalid(message) => ApiProblem::bad_request("invalid", message),
            DbError::Unavailable(message) => ApiProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "control_away",
                format!("the store of record is unavailable: {message}"),
            ),
            other => ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", other.to_string()),
        }
    }
}

impl From<ControlWriteError> for ApiProblem {
    fn from(why: ControlWriteError) -> ApiProblem {
        match why {
            ControlWriteError::Off => ApiProblem::off(),
            ControlWriteError::Unconfirmed(detail) => {
                ApiProblem::new(StatusCode::CONFLICT, "control_unconfirmed", detail)
            }
            ControlWriteError::Refused(WriteError::PreconditionFailed { current: now, .. }) => ApiProblem::lost(now),
            ControlWriteError::Refused(WriteError::Stale { .. }) => {
                let detail = "there are too many concurrent writes; try again";
                ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            }
            ControlWriteError::Refused(WriteError::OnceConflict) => {
                let detail = "this Idempotency-Key was used for another write; use a new one";
                ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_conflict", detail)
            }
            ControlWriteError::Refused(WriteError::Invalid(message)) => ApiProblem::bad_request("invalid", message),
            ControlWriteError::Refused(WriteError::Unavailable(message)) => {
                let detail = format!("the store of record is unavailable, decisions continue unchanged: {message}");
                ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "control_away", detail)
            }
            ControlWriteError::Refused(WriteError::Refused(message)) => {
                ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", message)
            }
        }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let mut problem = Problem::new(self.status, self.code, self.detail);
        if !self.faults.is_empty() {
            // Texts and numbers are always valid JSON.
            let faults = serde_json::to_vec(&self.faults).unwrap_or_else(|_| b"[]".to_vec());
            problem = problem.with_member("faults", &faults);
        }
        for (name, value) in self.members {
            problem = problem.with_member(name, value.to_string().as_bytes());
        }
        let mut response = problem.into_response().map(Body::new);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
