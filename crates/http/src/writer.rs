//! One buffer for a whole response: the body and all header values are slices of it.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use smallvec::SmallVec;

/// A response in progress: header values first, then the body.
pub(crate) struct ResponseWriter {
    buffer: Vec<u8>,
    fields: SmallVec<[(&'static HeaderName, Range<usize>); 12]>,
}

/// Enough for the headers and the body of nearly every response.
const INITIAL_CAPACITY: usize = 1024;

impl ResponseWriter {
    pub(crate) fn new() -> ResponseWriter {
        ResponseWriter { buffer: Vec::with_capacity(INITIAL_CAPACITY), fields: SmallVec::new() }
    }

    /// Adds a header with the value that `write` appends.
    pub(crate) fn field(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        write(&mut self.buffer);
        self.fields.push((name, start..self.buffer.len()));
    }

    /// Finishes the response with the body that `write` appends.
    pub(crate) fn finish(
        mut self,
        status: StatusCode,
        content_type: Option<&HeaderValue>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Response<Full<Bytes>> {
        let start = self.buffer.len();
        write(&mut self.buffer);
        let whole = Bytes::from(self.buffer);
        let mut headers = HeaderMap::with_capacity(self.fields.len() + 4);
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, content_type.clone());
        }
        for (name, range) in self.fields {
            // Values are printable ASCII; one that is not would be omitted.
            if let Ok(value) = HeaderValue::from_maybe_shared(whole.slice(range)) {
                headers.insert(name, value);
            }
        }
        let mut response = Response::new(Full::new(whole.slice(start..)));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a text member to a JSON object.
pub(crate) fn member(out: &mut Vec<u8>, name: &'static str, value: &str) {
    member_name(out, name);
    json_text(out, value);
}

/// Appends a number member.
pub(crate) fn number_member(out: &mut Vec<u8>, name: &'static str, value: u64) {
    member_name(out, name);
    number(out, value);
}

/// Appends a boolean member.
pub(crate) fn bool_member(out: &mut Vec<u8>, name: &'static str, value: bool) {
    member_name(out, name);
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

pub(crate) fn member_name(out: &mut Vec<u8>, name: &'static str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a JSON string.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    json_part(out, text);
    out.push(b'"');
}

/// Appends part of a JSON string.
pub(crate) fn json_part(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Appends a String of structured fields (RFC 9651). Characters other than printable ASCII, which only unnamed limits
/// of a tree can have, become `?`.
pub(crate) fn field_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    field_part(out, text, true);
    out.push(b'"');
}

/// Appends a text as a header value.
pub(crate) fn plain_text(out: &mut Vec<u8>, text: &str) {
    field_part(out, text, false);
}

fn field_part(out: &mut Vec<u8>, text: &str, escaped: bool) {
    for c in text.chars() {
        match c {
            '"' | '\\' if escaped => out.extend_from_slice(&[b'\\', c as u8]),
            ' '..='~' => out.push(c as u8),
            _ => out.push(b'?'),
        }
    }
}
