//! The heads of requests: what they say, and whether that has one meaning.
//!
//! Proxies in front of the gateway, and servers behind it, must not read another request in the same bytes. So a head that
//! they may read in different ways is refused: see docs/gateway.md#framing.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Request, StatusCode, Uri, Version};
use httparse::{ParserConfig, Status};

use super::{MAX_HEAD_BYTES, MAX_HEADERS};
use crate::answers::Answer;
use crate::field_marks::FieldMarks;
use crate::http1::{BodyRest, ChunkReader, FieldRange, has_option, header_map, number};

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) parts: Parts,
    /// The kinds of its fields.
    pub(super) marks: FieldMarks,
    /// `None` if the request has no body.
    pub(super) body: Option<BodyRest>,
    /// Whether the client wants to use the connection again.
    pub(super) is_persistent: bool,
    /// Whether it waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// Whether it reads trailers.
    pub(super) has_trailers: bool,
}

/// Why a request is refused without a look at its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    TooLarge,
    /// It is not HTTP/1.1.
    Malformed,
    /// More than one length or encoding, or one that servers read in different ways.
    Ambiguous,
    /// Another encoding than `chunked`.
    Encoding,
    /// What came of the body with the head is invalid.
    Body,
    /// It did not arrive in time.
    Slow,
}

/// Takes the head of a request from what was read. `None` if it is not complete.
pub(super) fn parse(input: &mut BytesMut) -> Result<Option<RequestHead>, RequestError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let end = match ParserConfig::default().parse_request_with_uninit_headers(&mut request, input, &mut fields) {
        Ok(Status::Complete(end)) if end > MAX_HEAD_BYTES => return Err(RequestError::TooLarge),
        Ok(Status::Complete(end)) => end,
        Ok(Status::Partial) if input.len() >= MAX_HEAD_BYTES => return Err(RequestError::TooLarge),
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::TooLarge),
        Err(_) => return Err(RequestError::Malformed),
    };
    let method = request.method.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    let target = request.path.unwrap_or_default();
    let target_start = target.as_ptr() as usize - input.as_ptr() as usize;
    let target = target_start..target_start + target.len();
    let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let fields = FieldRange::all(input, request.headers);
    let bytes = input.split_to(end).freeze();
    let uri = Uri::from_maybe_shared(bytes.slice(target)).ok();
    let headers = header_map(&bytes, &fields);
    let (Some(method), Some(uri), Some((headers, marks))) = (method, uri, headers) else {
        return Err(RequestError::Malformed);
    };
    let body = body_of(&bytes, &fields, marks, version)?;
    let is_old = version == Version::HTTP_10;
    let has = |option: &[u8]| marks.has(FieldMarks::CONNECTION) && has_option(&headers, option);
    let is_persistent = !has(b"close") && (!is_old || has(b"keep-alive"));
    let get = |mark, name: &http::HeaderName| if marks.has(mark) { headers.get(name) } else { None };
    let expects = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let expects_continue = !is_old && get(FieldMarks::EXPECT, &EXPECT).is_some_and(expects);
    let has_trailers = get(FieldMarks::TE, &TE)
        .and_then(|te| te.to_str().ok())
        .is_some_and(|te| te.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")));
    let mut parts = Request::new(()).into_parts().0;
    (parts.method, parts.uri, parts.version, parts.headers) = (method, uri, version, headers);
    Ok(Some(RequestHead { parts, marks, body, is_persistent, expects_continue, has_trailers }))
}

/// The body that a head announces.
fn body_of(
    head: &[u8],
    fields: &[FieldRange],
    marks: FieldMarks,
    version: Version,
) -> Result<Option<BodyRest>, RequestError> {
    if !marks.has(FieldMarks::CONTENT_LENGTH.with(FieldMarks::TRANSFER_ENCODING)) {
        return Ok(None);
    }
    let mut found = None;
    for field in fields {
        let name = &head[field.name.clone()];
        let is_length = name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes());
        let is_encoding = name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str().as_bytes());
        if !is_length && !is_encoding {
            continue;
        }
        if found.is_some() || has_tab_around(head, field) {
            return Err(RequestError::Ambiguous);
        }
        let value = &head[field.value.clone()];
        found = Some(if is_length {
            BodyRest::Known(number(value).ok_or(RequestError::Ambiguous)?)
        } else {
            encoding(value, version)?
        });
    }
    Ok(found.filter(|body| *body != BodyRest::Known(0)))
}

/// Only `chunked` is undone here, and any other encoding would get lost.
fn encoding(value: &[u8], version: Version) -> Result<BodyRest, RequestError> {
    if version == Version::HTTP_10 {
        return Err(RequestError::Malformed);
    }
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(BodyRest::Chunks(ChunkReader::Size));
    }
    // A body whose last encoding is another one has no end.
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    match last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
        true => Err(RequestError::Encoding),
        false => Err(RequestError::Malformed),
    }
}

/// Whether a tab is next to the value of a field: some servers take it for a part of the value.
fn has_tab_around(head: &[u8], field: &FieldRange) -> bool {
    let before = &head[field.name.end..field.value.start];
    let after = &head[field.value.end..];
    let end = after.iter().position(|byte| *byte == b'\n').unwrap_or(after.len());
    before.contains(&b'\t') || after[..end].contains(&b'\t')
}

impl RequestError {
    /// The response, after which the connection ends.
    pub(super) fn answer(self) -> Answer {
        let (status, code, detail) = match self {
            RequestError::TooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head_too_large",
                "The head of the request is too large, or has too many fields.",
            ),
            RequestError::Malformed => {
                (StatusCode::BAD_REQUEST, "malformed_head", "The head of the request is not valid HTTP/1.1.")
            }
            RequestError::Ambiguous => (
                StatusCode::BAD_REQUEST,
                "ambiguous_body",
                "The request has more than one length or encoding of its body.",
            ),
            RequestError::Encoding => (
                StatusCode::NOT_IMPLEMENTED,
                "transfer_encoding",
                "The only transfer encoding that is accepted is chunked.",
            ),
            RequestError::Body => (StatusCode::BAD_REQUEST, "broken_body", "The body could not be read."),
            RequestError::Slow => {
                (StatusCode::REQUEST_TIMEOUT, "head_timeout", "The head of the request did not arrive in time.")
            }
        };
        Answer::problem(status, code, detail).closing()
    }
}
