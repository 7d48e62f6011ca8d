//! The heads of messages: requests are written, responses read.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use httparse::{ParserConfig, Status};

use crate::field_marks::FieldMarks;
use crate::http1::{FieldRange, has_option, header_map, number, write_field, write_further, write_length};
use crate::upstream::sender::RequestHead;

/// The most fields of a response.
const MAX_FIELDS: usize = 100;

/// How the end of a request's body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestLength {
    /// No body, and nothing is said of it.
    None,
    Known(u64),
    Chunked,
}

/// How the end of a response's body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseLength {
    Known(u64),
    Chunked,
    /// The server closes the connection.
    Close,
    /// The connection has another protocol from now on.
    Upgrade,
}

#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Whether the connection can be used again.
    pub(super) is_persistent: bool,
    pub(super) length: ResponseLength,
}

/// Appends the head of a request. Fields that say how long the body is are written anew.
pub(super) fn write(head: &RequestHead, length: RequestLength, output: &mut Vec<u8>) {
    output.extend_from_slice(head.method.as_str().as_bytes());
    output.push(b' ');
    let target = head.target.path_and_query().map_or("/", |target| target.as_str());
    output.extend_from_slice(target.as_bytes());
    output.extend_from_slice(b" HTTP/1.1\r\n");
    write_field(&HOST, &head.authority, output);
    let mut has_cookies = false;
    for (name, value) in &head.headers {
        if *name == HOST || *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING {
            continue;
        }
        // HTTP/2 clients may send each cookie in a field of its own, which HTTP/1.1 forbids (RFC 9113 8.2.3, RFC 6265 5.4). The
        // values of a name follow each other.
        if *name == COOKIE && std::mem::replace(&mut has_cookies, true) {
            write_further(b"; ", value, output);
        } else {
            write_field(name, value, output);
        }
    }
    match length {
        RequestLength::None => {}
        RequestLength::Known(length) => write_length(length, output),
        RequestLength::Chunked => output.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    output.extend_from_slice(b"\r\n");
}

/// Takes the head of a response from what was read. `None` if it is not complete.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, &'static str> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, input, &mut fields);
    let end = match parsed {
        Ok(Status::Complete(end)) => end,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("the response has too many fields"),
        Err(_) => return Err("the head of the response is not HTTP"),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("the response has no status")?;
    let is_old = response.version != Some(1);
    let fields = FieldRange::all(input, response.headers);
    let bytes = input.split_to(end).freeze();
    let (headers, marks) = header_map(&bytes, &fields).ok_or("a field of the response is invalid")?;
    let length = length(status, method, (&headers, marks), is_old)?;
    let has = |option: &[u8]| marks.has(FieldMarks::CONNECTION) && has_option(&headers, option);
    let has_end = !matches!(length, ResponseLength::Close | ResponseLength::Upgrade);
    let is_persistent = has_end && !has(b"close") && (!is_old || has(b"keep-alive"));
    Ok(Some(ResponseHead { status, headers, is_persistent, length }))
}

/// How long the body is (RFC 9112 6.3). What could be read in two ways is an error.
fn length(
    status: StatusCode,
    method: &Method,
    (headers, marks): (&HeaderMap, FieldMarks),
    is_old: bool,
) -> Result<ResponseLength, &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let known = match lengths.next() {
        None => None,
        Some(value) => Some(number(value.as_bytes()).ok_or("the response has an invalid Content-Length")?),
    };
    if lengths.any(|other| number(other.as_bytes()) != known) {
        return Err("the response has two lengths");
    }
    let has_no_body = *method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let has_encoding = marks.has(FieldMarks::TRANSFER_ENCODING);
    let mut encodings = has_encoding.then(|| headers.get_all(TRANSFER_ENCODING)).into_iter().flatten();
    let encoding = encodings.next();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(ResponseLength::Upgrade);
    }
    if has_no_body {
        return Ok(ResponseLength::Known(0));
    }
    match (encoding, known) {
        (None, None) => Ok(ResponseLength::Close),
        (None, Some(length)) => Ok(ResponseLength::Known(length)),
        (Some(_), Some(_)) => Err("the response has both Content-Length and Transfer-Encoding"),
        (Some(encoding), None) => {
            let is_chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked") && encodings.next().is_none();
            if is_chunked && !is_old {
                Ok(ResponseLength::Chunked)
            } else {
                Err("the encoding of the response is unknown")
            }
        }
    }
}
