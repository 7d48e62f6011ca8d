//! Problem documents: `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tollgate_shed::Shedder;

use crate::writer::{ResponseWriter, json_text, member, member_name, number_member};

/// The content type of problem documents.
pub static PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The first members of a response to a request that is refused because there is no capacity for it.
pub(crate) const REDUCED_CAPACITY: &[u8] = br#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity""#;

/// A request that can't be served, as reported to its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    /// Identifies the problem to programs. It is stable; the text of `detail` is not.
    pub code: &'static str,
    /// What is wrong and how to fix it, for people.
    pub detail: String,
    kind: ProblemKind,
    /// Extension members, encoded.
    extensions: Vec<u8>,
}

/// The type of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProblemKind {
    /// That of its status.
    Blank,
    ReducedCapacity,
}

impl Problem {
    /// A problem of this status.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), kind: ProblemKind::Blank, extensions: Vec::new() }
    }

    /// A request that a shedder refuses. It may be repeated after so many seconds.
    pub fn shed(by: Shedder, retry_after: u64) -> Problem {
        let detail = "The service is under too much load to answer this request now.";
        let mut problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "shed", detail);
        problem.kind = ProblemKind::ReducedCapacity;
        number_member(&mut problem.extensions, "retry_after", retry_after);
        problem.extensions.extend_from_slice(br#","retryable":true"#);
        member(&mut problem.extensions, "shed", by.name());
        problem
    }

    /// A problem of status 400.
    pub fn bad_request(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Adds an extension member. `json` is its encoded value.
    #[must_use]
    pub fn with_member(mut self, name: &'static str, json: &[u8]) -> Problem {
        member_name(&mut self.extensions, name);
        self.extensions.extend_from_slice(json);
        self
    }

    /// The response. A 401 includes a `WWW-Authenticate` challenge.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let response = ResponseWriter::new().finish(self.status, Some(&PROBLEM_JSON), |out| {
            match self.kind {
                ProblemKind::Blank => {
                    out.extend_from_slice(br#"{"type":"about:blank","title":"#);
                    json_text(out, self.status.canonical_reason().unwrap_or("Error"));
                }
                ProblemKind::ReducedCapacity => out.extend_from_slice(REDUCED_CAPACITY),
            }
            number_member(out, "status", self.status.as_u16().into());
            member(out, "code", self.code);
            member(out, "detail", &self.detail);
            out.extend_from_slice(&self.extensions);
            out.push(b'}');
        });
        let mut response = response.into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"tollgate\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(response: Response<Full<Bytes>>) -> String {
        let whole = tollgate::poll_once(http_body_util::BodyExt::collect(response.into_body())).unwrap().unwrap();
        String::from_utf8(whole.to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn members_come_in_the_order_of_the_rfc() {
        let problem = Problem::bad_request("bad_json", "a \"quote\"\nand a line");
        let response = problem.clone().into_response();
        assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (400, &PROBLEM_JSON));
        assert_eq!(
            body(response),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"code":"bad_json","detail":"a \"quote\"\u000aand a line"}"#
        );
        let extended = problem.with_member("faults", b"[1]").into_response();
        assert!(body(extended).ends_with(r#"a line","faults":[1]}"#));
    }

    #[test]
    fn what_a_shedder_refuses_has_the_type_of_reduced_capacity() {
        assert_eq!(
            body(Problem::shed(Shedder::Worker, 2).into_response()),
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"code":"shed","detail":"The service is under too much load to answer this request now.","retry_after":2,"retryable":true,"shed":"worker"}"#
        );
    }

    #[test]
    fn only_unauthorized_responses_have_a_challenge() {
        let challenged =
            |status| Problem::new(status, "c", "d").into_response().headers().contains_key("www-authenticate");
        assert!(challenged(StatusCode::UNAUTHORIZED) && !challenged(StatusCode::FORBIDDEN));
    }
}
