//! What is told to one whose request can't be served: `application/problem+json` (RFC 9457), with every fault named.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tollgate::control::Fault;
use tollgate::told::PROBLEM_JSON;
use tollgate_control::{DbError, WriteError};

use crate::control::NotWritten;

/// A request that is not served as it was meant.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// For programs; it stays what it is when the sentence changes.
    pub(crate) code: &'static str,
    /// What is wrong, and what to do.
    pub(crate) detail: String,
    /// All that is wrong with a body.
    pub(crate) faults: Vec<Fault>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[Fault]>::is_empty")]
    faults: &'a [Fault],
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), faults: Vec::new() }
    }

    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn not_found(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// A body that has these faults.
    pub(crate) fn invalid(faults: Vec<Fault>) -> Problem {
        let detail = match &faults[..] {
            [one] => one.to_string(),
            many => format!("there are {} faults", many.len()),
        };
        Problem { faults, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
    }

    /// Something else was there than was expected: somebody else wrote it meanwhile.
    pub(crate) fn lost(now: Option<u64>) -> Problem {
        let detail = match now {
            Some(now) => format!("it is at \"{now}\" by now; read it again, and write with If-Match: \"{now}\""),
            None => "it is not there; write without If-Match to make it".to_owned(),
        };
        Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail)
    }

    /// Something is there that was not to be.
    pub(crate) fn exists(now: u64) -> Problem {
        let detail = format!("it is there already, at \"{now}\"");
        Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail)
    }

    /// There is no store of record.
    pub(crate) fn off() -> Problem {
        let detail = "this server has no store of record; start it with a data directory (--data), or with --control";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "control_off", detail)
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Problem {
        match error {
            DbError::Invalid(what) => Problem::bad_request("invalid", what),
            DbError::Away(what) => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "control_away",
                format!("the store of record is away: {what}"),
            ),
            other => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", other.to_string()),
        }
    }
}

impl From<NotWritten> for Problem {
    fn from(why: NotWritten) -> Problem {
        match why {
            NotWritten::Off => Problem::off(),
            NotWritten::Refused(WriteError::Lost { now, .. }) => Problem::lost(now),
            NotWritten::Refused(WriteError::Moved { .. }) => {
                let detail = "others write all the time, and this depends on what they write; try again";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            }
            NotWritten::Refused(WriteError::OnceConflict) => {
                let detail = "this Idempotency-Key was used for another write; use a new one";
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_conflict", detail)
            }
            NotWritten::Refused(WriteError::Invalid(what)) => Problem::bad_request("invalid", what),
            NotWritten::Refused(WriteError::Away(what)) => {
                let detail = format!("the store of record is away, decisions go on as they were: {what}");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "control_away", detail)
            }
            NotWritten::Refused(WriteError::Refused(what)) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", what)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            faults: &self.faults,
        };
        // Texts and numbers always have a form in JSON.
        let text = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status, text).into_response();
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON.clone());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"tollgate\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }
}
