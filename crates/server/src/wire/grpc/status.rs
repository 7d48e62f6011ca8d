//! Errors, as gRPC tells them.

use std::time::Duration;

use http::{HeaderValue, Response, header};

use super::body::Body;

/// Why a call has no answer.
#[derive(Debug)]
pub(super) struct Status {
    code: u8,
    message: String,
}

const DEADLINE_EXCEEDED: u8 = 4;
const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAUTHENTICATED: u8 = 16;

impl Status {
    pub(super) fn invalid(message: String) -> Status {
        Status { code: INVALID_ARGUMENT, message }
    }

    pub(super) fn internal(message: String) -> Status {
        Status { code: INTERNAL, message }
    }

    pub(super) fn too_large(most: usize) -> Status {
        Status { code: RESOURCE_EXHAUSTED, message: format!("the message is too large; at most {most} bytes") }
    }

    pub(super) fn too_slow(most: Duration) -> Status {
        Status { code: DEADLINE_EXCEEDED, message: format!("the message did not arrive within {most:?}") }
    }

    pub(super) fn too_busy() -> Status {
        Status { code: RESOURCE_EXHAUSTED, message: "too many calls are arriving at once; try again".to_owned() }
    }

    pub(super) fn cut_off() -> Status {
        Status::invalid("the call must have exactly one whole message".to_owned())
    }

    pub(super) fn compressed() -> Status {
        Status { code: UNIMPLEMENTED, message: "compressed messages are not read; send them as they are".to_owned() }
    }

    pub(super) fn no_token() -> Status {
        let message = "show a token that may check: metadata `authorization: Bearer tg_…` with the scope `check`";
        Status { code: UNAUTHENTICATED, message: message.to_owned() }
    }

    /// An answer of headers alone.
    pub(super) fn response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(self.code)));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message)) {
            headers.insert("grpc-message", message);
        }
        response
    }
}

/// Text as the protocol wants it in a header: printable ASCII but for `%` as it is, the rest by its bytes.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a String can't fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_printable_ascii() {
        assert_eq!(super::percent_encoded("a %\n→b"), "a %25%0A%E2%86%92b");
    }
}
