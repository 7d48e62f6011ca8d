//! The head of a plain request.

use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Status, parse_headers};

/// A plain request that has arrived whole.
#[derive(Debug)]
pub(super) struct PlainHead {
    pub(super) endpoint: PlainEndpoint,
    /// The length of the head.
    pub(super) bytes: usize,
    /// The length of the body, which follows.
    pub(super) body_bytes: usize,
    /// The headers, without those that mean nothing to these endpoints.
    pub(super) headers: HeaderMap,
}

/// An endpoint with plain requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainEndpoint {
    Check,
    Settle,
}

/// What a header means for reading a request.
enum Meaning {
    ContentLength,
    Connection,
    /// It means nothing to these endpoints. `Host` matters only for requests of web pages, which have an `Origin`.
    Nothing,
    /// The request is not plain: its body is framed in another way, the client waits for an interim response, or it is a
    /// web page's.
    NotPlain,
    Other,
}

const REQUEST_LINES: [(&[u8], PlainEndpoint); 2] = [
    (b"POST /v1/ratelimit/check HTTP/1.1\r\n", PlainEndpoint::Check),
    (b"POST /v1/ratelimit/settle HTTP/1.1\r\n", PlainEndpoint::Settle),
];
const MAX_PLAIN_HEADERS: usize = 24;
/// The digits of a `Content-Length`: enough for every body that fits into a read.
const MAX_LENGTH_DIGITS: usize = 6;

impl PlainHead {
    /// Parses the request at the start of `bytes`. `None` if it is not plain, or not complete.
    pub(super) fn parse(bytes: &[u8]) -> Option<PlainHead> {
        let (rest, endpoint) =
            REQUEST_LINES.iter().find_map(|(line, endpoint)| Some((bytes.strip_prefix(*line)?, *endpoint)))?;
        let mut parsed = [EMPTY_HEADER; MAX_PLAIN_HEADERS];
        let Ok(Status::Complete((length, parsed))) = parse_headers(rest, &mut parsed) else { return None };
        let mut headers = HeaderMap::new();
        let mut body_bytes = None;
        for header in parsed {
            match meaning(header.name) {
                Meaning::Nothing => {}
                Meaning::ContentLength if body_bytes.is_none() => body_bytes = Some(content_length(header.value)?),
                Meaning::Connection if header.value.eq_ignore_ascii_case(b"keep-alive") => {}
                Meaning::ContentLength | Meaning::Connection | Meaning::NotPlain => return None,
                Meaning::Other => {
                    let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
                    headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
                }
            }
        }
        let (bytes_of_head, body_bytes) = (bytes.len() - rest.len() + length, body_bytes?);
        let is_whole = bytes.len() - bytes_of_head >= body_bytes;
        is_whole.then_some(PlainHead { endpoint, bytes: bytes_of_head, body_bytes, headers })
    }
}

fn meaning(name: &str) -> Meaning {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    // By length, so that a name is compared with few others.
    match name.len() {
        4 if is("host") => Meaning::Nothing,
        6 if is("accept") => Meaning::Nothing,
        6 if is("expect") || is("origin") => Meaning::NotPlain,
        7 if is("upgrade") || is("trailer") => Meaning::NotPlain,
        10 if is("user-agent") => Meaning::Nothing,
        10 if is("connection") => Meaning::Connection,
        12 if is("content-type") => Meaning::Nothing,
        14 if is("content-length") => Meaning::ContentLength,
        15 if is("accept-encoding") => Meaning::Nothing,
        17 if is("transfer-encoding") => Meaning::NotPlain,
        _ => Meaning::Other,
    }
}

fn content_length(value: &[u8]) -> Option<usize> {
    if value.is_empty() || value.len() > MAX_LENGTH_DIGITS {
        return None;
    }
    value.iter().try_fold(0, |length, digit| match digit {
        b'0'..=b'9' => Some(10 * length + usize::from(digit - b'0')),
        _ => None,
    })
}
