//! The gateway's own responses to requests that it does not forward, or whose upstream failed.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tollgate::poll_once;
use tollgate_http::problem::Problem;
use tollgate_http::response::{SHED, WrittenResponse};
use tollgate_http::tower::grpc_refusal;
use tollgate_shed::{RetryAfter, Shedder};

use crate::response_body::ResponseBody;

/// A request that gets a response of the gateway's own.
#[derive(Debug)]
pub(crate) struct Answer(Box<Response<Bytes>>);

impl Answer {
    /// A problem document.
    pub(crate) fn problem(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Answer {
        let problem = Problem::new(status, code, detail).with_member("by", b"\"gateway\"");
        Answer::from(problem.into_response())
    }

    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Answer {
        Answer::problem(StatusCode::BAD_REQUEST, code, detail)
    }

    /// A document for one caller.
    pub(crate) fn json(document: Vec<u8>) -> Answer {
        let answer = Answer(Box::new(Response::new(document.into())));
        let json = HeaderValue::from_static("application/json");
        answer
            .with_header(header::CONTENT_TYPE, json)
            .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }

    /// A request that is refused to protect the system.
    pub(crate) fn shed(by: Shedder) -> Answer {
        let retry_after = RetryAfter::default().draw_seconds(fastrand::u64(..));
        let problem = Problem::shed(by, retry_after).with_member("by", b"\"gateway\"");
        let mut answer =
            Answer::from(problem.into_response()).with_header(header::RETRY_AFTER, HeaderValue::from(retry_after));
        answer.0.headers_mut().insert(&SHED, HeaderValue::from_static(by.name()));
        answer
    }

    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.0.headers_mut().insert(name, value);
        self
    }

    /// Adds a field, and leaves others of its name.
    #[must_use]
    pub(crate) fn with_further(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.0.headers_mut().append(name, value);
        self
    }

    /// Adds the headers of the limits.
    #[must_use]
    pub(crate) fn with_limits(mut self, limits: Option<Box<WrittenResponse>>) -> Answer {
        if let Some(limits) = limits {
            limits.add_headers(self.0.headers_mut());
        }
        self
    }

    /// The connection ends with this response: what follows on it can't be trusted.
    #[must_use]
    pub(crate) fn closing(self) -> Answer {
        self.with_header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// The response. A gRPC call has its status in a header.
    pub(crate) fn into_response(self, is_grpc: bool) -> Response<ResponseBody> {
        let response = if is_grpc { grpc_refusal(*self.0) } else { *self.0 };
        response.map(ResponseBody::own)
    }

    /// Seconds after which the client may retry.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.0.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }

    /// Whether a shedder refused.
    pub(crate) fn is_shed(&self) -> bool {
        self.0.headers().contains_key(&SHED)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl From<Response<http_body_util::Full<Bytes>>> for Answer {
    /// Its body is in memory.
    fn from(response: Response<http_body_util::Full<Bytes>>) -> Answer {
        let whole = response.map(|body| {
            poll_once(body.collect()).map_or_else(Bytes::new, |whole| match whole {
                Ok(whole) => whole.to_bytes(),
                Err(never) => match never {},
            })
        });
        Answer(Box::new(whole))
    }
}
