//! gRPC errors.

use std::time::Duration;

use http::{HeaderValue, Response, header};

use super::respond::{APPLICATION_GRPC, GRPC_STATUS};

/// The error status of a call.
#[derive(Debug)]
pub(super) struct GrpcStatus {
    code: u8,
    message: String,
}

const DEADLINE_EXCEEDED: u8 = 4;
const INVALID_ARGUMENT: u8 = 3;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAUTHENTICATED: u8 = 16;

impl GrpcStatus {
    pub(super) fn invalid(message: String) -> GrpcStatus {
        GrpcStatus { code: INVALID_ARGUMENT, message }
    }

    pub(super) fn internal(message: String) -> GrpcStatus {
        GrpcStatus { code: INTERNAL, message }
    }

    pub(super) fn too_slow(max: Duration) -> GrpcStatus {
        GrpcStatus { code: DEADLINE_EXCEEDED, message: format!("the message did not arrive within {max:?}") }
    }

    pub(super) fn cut_off() -> GrpcStatus {
        GrpcStatus::invalid("a call must have exactly one complete message".to_owned())
    }

    pub(super) fn compressed() -> GrpcStatus {
        GrpcStatus {
            code: UNIMPLEMENTED,
            message: "compressed messages are not supported; send them uncompressed".to_owned(),
        }
    }

    pub(super) fn no_token() -> GrpcStatus {
        let message = "a token with the scope `check` is required: send metadata `authorization: Bearer tg_…`";
        GrpcStatus { code: UNAUTHENTICATED, message: message.to_owned() }
    }

    /// A response of headers only.
    pub(super) fn response(self) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, APPLICATION_GRPC);
        headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(self.code)));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message)) {
            headers.insert("grpc-message", message);
        }
        response
    }
}

/// Percent-encodes a text for a header: printable ASCII except `%` stays.
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
