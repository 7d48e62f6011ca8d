//! One buffer for a whole answer: the body and all header values are slices of it.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use smallvec::SmallVec;

/// An answer that is being written: header values first, then the body.
pub(super) struct Sheet {
    buffer: Vec<u8>,
    fields: SmallVec<[(&'static HeaderName, Range<usize>); 12]>,
}

/// Enough for the headers and the body of nearly every answer.
const USUAL_BYTES: usize = 1024;

impl Sheet {
    pub(super) fn new() -> Sheet {
        Sheet { buffer: Vec::with_capacity(USUAL_BYTES), fields: SmallVec::new() }
    }

    /// A header whose value is whatever is written.
    pub(super) fn field(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        write(&mut self.buffer);
        self.fields.push((name, start..self.buffer.len()));
    }

    /// Ends it with a body.
    pub(super) fn finish(
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
            // What is written is printable ASCII; if it ever were not, the answer does without it.
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

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A further member of a JSON object.
pub(super) fn member(out: &mut Vec<u8>, name: &'static str, value: &str) {
    name_of(out, name);
    json_text(out, value);
}

/// A further member that is a number.
pub(super) fn number_member(out: &mut Vec<u8>, name: &'static str, value: u64) {
    name_of(out, name);
    number(out, value);
}

/// A further member that is a truth value.
pub(super) fn truth_member(out: &mut Vec<u8>, name: &'static str, value: bool) {
    name_of(out, name);
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

fn name_of(out: &mut Vec<u8>, name: &'static str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A JSON string.
pub(super) fn json_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    json_part(out, text);
    out.push(b'"');
}

/// Part of a JSON string.
pub(super) fn json_part(out: &mut Vec<u8>, text: &str) {
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

/// A String of structured fields (RFC 9651). It is printable ASCII: what is not, which only the names of unnamed limits of a tree
/// can have, becomes `?`.
pub(super) fn field_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    field_part(out, text, true);
    out.push(b'"');
}

/// A text as the value of a header.
pub(super) fn plain_text(out: &mut Vec<u8>, text: &str) {
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
