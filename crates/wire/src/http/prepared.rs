//! Responses that are not bound to who reads the requests of a connection.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tollgate_http::response::WrittenResponse;

/// The response of an endpoint whose requests may be plain.
pub(super) enum PreparedResponse {
    /// The usual response, which takes few steps to send.
    Written(WrittenResponse),
    /// Any other: the request is invalid, or can't be decided.
    Other(Response<Full<Bytes>>),
}

impl PreparedResponse {
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        match self {
            PreparedResponse::Written(response) => response.into_response(),
            PreparedResponse::Other(response) => response,
        }
    }
}

impl From<WrittenResponse> for PreparedResponse {
    fn from(response: WrittenResponse) -> PreparedResponse {
        PreparedResponse::Written(response)
    }
}

impl From<Response<Full<Bytes>>> for PreparedResponse {
    fn from(response: Response<Full<Bytes>>) -> PreparedResponse {
        PreparedResponse::Other(response)
    }
}
