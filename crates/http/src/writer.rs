//! One buffer for a whole response: the body and all header values are slices of it.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use smallvec::SmallVec;

/// The names of headers, and where in the buffer their values are.
type Fields = SmallVec<[(&'static HeaderName, Range<usize>); 12]>;

/// A response in progress: header values first, then the body.
pub(crate) struct ResponseWriter {
    buffer: Vec<u8>,
    fields: Fields,
}

/// A complete response that is not bound to a representation yet.
#[derive(Debug)]
pub struct WrittenResponse {
    status: StatusCode,
    content_type: Option<&'static HeaderValue>,
    /// The values are printable ASCII: this crate writes them.
    fields: Fields,
    /// The values of the fields, then the body.
    buffer: Vec<u8>,
    body: usize,
}

/// What follows a response on a connection of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It stays open.
    Open,
    /// It is closed.
    AfterResponse,
}

impl ConnectionEnd {
    /// The line end and the header that announce it, if there is something to announce.
    pub fn field(self) -> &'static [u8] {
        match self {
            ConnectionEnd::Open => b"",
            ConnectionEnd::AfterResponse => b"\r\nconnection: close",
        }
    }
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
        content_type: Option<&'static HeaderValue>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> WrittenResponse {
        let body = self.buffer.len();
        write(&mut self.buffer);
        WrittenResponse { status, content_type, fields: self.fields, buffer: self.buffer, body }
    }
}

impl WrittenResponse {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers, without those of the body.
    pub fn fields(&self) -> impl Iterator<Item = (&'static HeaderName, &[u8])> {
        self.fields.iter().map(|(name, range)| (*name, &self.buffer[range.clone()]))
    }

    /// The body, and its type if it has one.
    pub fn body(&self) -> (Option<&'static HeaderValue>, &[u8]) {
        (self.content_type, &self.buffer[self.body..])
    }

    /// Appends the response as a message of HTTP/1.1. `date` is an IMF-fixdate.
    pub fn write_http1(&self, date: &[u8], end: ConnectionEnd, out: &mut Vec<u8>) {
        out.reserve(self.buffer.len() + 64 * (self.fields.len() + 4));
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.status.canonical_reason().unwrap_or_default().as_bytes());
        if let Some(content_type) = self.content_type {
            out.extend_from_slice(b"\r\ncontent-type: ");
            out.extend_from_slice(content_type.as_bytes());
        }
        for (name, range) in &self.fields {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(&self.buffer[range.clone()]);
        }
        out.extend_from_slice(end.field());
        out.extend_from_slice(b"\r\ncontent-length: ");
        number(out, (self.buffer.len() - self.body) as u64);
        out.extend_from_slice(b"\r\ndate: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&self.buffer[self.body..]);
    }

    /// Adds its headers, without those of the body, to the response of another.
    pub fn add_headers(self, headers: &mut HeaderMap) {
        add(self.fields, &Bytes::from(self.buffer), headers);
    }

    /// The response for a server or a framework.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let WrittenResponse { status, content_type, fields, buffer, body } = self;
        let whole = Bytes::from(buffer);
        let mut headers = HeaderMap::with_capacity(fields.len() + 4);
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, content_type.clone());
        }
        add(fields, &whole, &mut headers);
        let mut response = Response::new(Full::new(whole.slice(body..)));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// Adds fields whose values are in this buffer. A field of the same name is replaced.
fn add(fields: Fields, buffer: &Bytes, headers: &mut HeaderMap) {
    headers.reserve(fields.len());
    for (name, range) in fields {
        if let Ok(value) = HeaderValue::from_maybe_shared(buffer.slice(range)) {
            headers.insert(name, value);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_the_same_message_in_either_form() {
        static NAME: HeaderName = HeaderName::from_static("x-name");
        static KIND: HeaderValue = HeaderValue::from_static("text/plain");
        let written = || {
            let mut writer = ResponseWriter::new();
            writer.field(&NAME, |out| plain_text(out, "a\r\nb: c"));
            writer.finish(StatusCode::TOO_MANY_REQUESTS, Some(&KIND), |out| out.extend_from_slice(b"body"))
        };
        let message = |end| {
            let mut out = Vec::new();
            written().write_http1(b"Sun, 06 Nov 1994 08:49:37 GMT", end, &mut out);
            String::from_utf8(out).unwrap()
        };
        let open = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: text/plain\r\nx-name: a??b: c\r\n\
                    content-length: 4\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nbody";
        assert_eq!(message(ConnectionEnd::Open), open);
        let last = open.replace("content-length", "connection: close\r\ncontent-length");
        assert_eq!(message(ConnectionEnd::AfterResponse), last);
        let response = written().into_response();
        assert_eq!((response.status().as_u16(), response.headers().len()), (429, 2));
        assert_eq!(response.headers()["x-name"], "a??b: c");
        assert_eq!(response.headers()["content-type"], KIND);
    }
}
