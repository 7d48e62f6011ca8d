//! The target of a request: what routes and rules match, and what the upstream gets.
//!
//! A client must not find a spelling that one rule matches and the upstream reads as another. So the path is forwarded in
//! one spelling, of which [`PathNormalization`] makes the same path as of the client's own: encoded letters, digits, `-`,
//! `.`, `_` and `~` are decoded, the digits of other encoded bytes are in upper case, and dot segments are resolved. What
//! upstreams may read in different ways is an [`OddPath`]. The query is forwarded as it is.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

use http::header::HOST;
use http::request::Parts;
use http::{Method, StatusCode, Version};
use tollgate_http::request_target::PathNormalization;

use crate::routes::without_port;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'r> {
    /// The host, and the port if there is one: the `Host` of the forwarded request.
    pub authority: &'r str,
    /// What routes and rules match: decoded, without dot segments and repeated slashes. `*` for `OPTIONS *`.
    pub path: Cow<'r, [u8]>,
    /// The path and the query that are forwarded.
    pub forwarded: Cow<'r, str>,
    /// Why the answer is 400, unless the route has `odd_paths`.
    pub odd: Option<OddPath>,
}

/// Why upstreams may disagree about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OddPath {
    /// `%2F`
    EncodedSlash,
    /// `%5C`
    EncodedBackslash,
    Backslash,
    /// A control character, encoded or not, such as `%00`.
    Control,
    /// `//`
    EmptySegment,
    /// `..` in the first segment.
    AboveRoot,
    /// A `%` without two hexadecimal digits after it.
    StrayPercent,
}

/// Why a request has no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFault {
    /// CONNECT or TRACE.
    Method,
    NoHost,
    SeveralHosts,
    /// A user, a port that is none, or characters that no host has.
    BadHost,
    /// `Host` and `:authority` differ.
    HostsDisagree,
    /// An absolute form with a scheme other than `http` and `https`.
    Scheme,
    /// Neither a path nor the `*` of OPTIONS.
    NoPath,
}

/// The longest host, in bytes.
const MAX_HOST_BYTES: usize = 254;

// === impl Target ===

impl<'r> Target<'r> {
    /// The target of a request.
    pub fn read(parts: &'r Parts) -> Result<Target<'r>, TargetFault> {
        if parts.method == Method::CONNECT || parts.method == Method::TRACE {
            return Err(TargetFault::Method);
        }
        let authority = authority(parts)?;
        let path_and_query = parts.uri.path_and_query().ok_or(TargetFault::NoPath)?;
        let path = path_and_query.path();
        let (odd, forwarded) = match path.strip_prefix('/') {
            _ if path == "*" && parts.method == Method::OPTIONS => (None, Cow::Borrowed(path)),
            None => return Err(TargetFault::NoPath),
            // A query alone follows the authority of some absolute forms.
            Some(rest) if is_ordinary(rest) && path_and_query.as_str().starts_with('/') => {
                (None, Cow::Borrowed(path_and_query.as_str()))
            }
            Some(rest) => {
                let (mut forwarded, odd) = rewritten(rest);
                if let Some(query) = path_and_query.query() {
                    forwarded.push('?');
                    forwarded.push_str(query);
                }
                (odd, Cow::Owned(forwarded))
            }
        };
        Ok(Target { authority, path: PathNormalization::default().path(path.as_bytes()), forwarded, odd })
    }

    /// The host without its port, as it was sent.
    pub fn host(&self) -> &'r str {
        without_port(self.authority)
    }
}

/// A path and query without the segments of a prefix, such as `/v1`. The path must begin with these segments, in whichever
/// spelling: it is the forwarded one of a route whose pattern begins with them.
pub fn without_prefix<'p>(path_and_query: &'p str, prefix: &str) -> Cow<'p, str> {
    let is_named = |segment: &&str| !segment.is_empty();
    let mut left = prefix.split('/').filter(is_named).count();
    let end = path_and_query.find('?').unwrap_or(path_and_query.len());
    let (mut path, query) = path_and_query.split_at(end);
    while left > 0 && !path.is_empty() {
        let segments = path.trim_start_matches('/');
        path = segments.find('/').map_or("", |at| &segments[at..]);
        left -= 1;
    }
    match path.is_empty() {
        true => Cow::Owned(format!("/{query}")),
        false => Cow::Borrowed(&path_and_query[end - path.len()..]),
    }
}

// === The authority ===

fn authority(parts: &Parts) -> Result<&str, TargetFault> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(TargetFault::SeveralHosts);
    }
    let host = host.map(|host| host.to_str().map_err(|_| TargetFault::BadHost)).transpose()?;
    let is_http2 = parts.version >= Version::HTTP_2;
    if !matches!(parts.uri.scheme_str(), None | Some("http" | "https")) {
        return Err(TargetFault::Scheme);
    }
    let authority = match (parts.uri.authority(), host) {
        // `host:port` alone is the form of CONNECT.
        (Some(_), _) if parts.uri.scheme().is_none() => return Err(TargetFault::NoPath),
        (Some(given), Some(host)) if is_http2 && !given.as_str().eq_ignore_ascii_case(host) => {
            return Err(TargetFault::HostsDisagree);
        }
        // HTTP/1.1 requires `Host` with the absolute form too, though it has no effect (RFC 9112 3.2, 3.2.2).
        (Some(_), None) if !is_http2 => return Err(TargetFault::NoHost),
        (Some(given), _) => given.as_str(),
        (None, Some(host)) => host,
        (None, None) => return Err(TargetFault::NoHost),
    };
    if is_authority(authority) { Ok(authority) } else { Err(TargetFault::BadHost) }
}

/// Whether a text is a host and possibly a port. Names with encoded or other unusual characters are none: no certificate
/// and no route has them.
fn is_authority(text: &str) -> bool {
    let host = without_port(text);
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            // No label is empty, but for a dot at the end.
            let mut before = b'.';
            host.bytes().all(|byte| {
                let is_usual = match byte {
                    b'.' => before != b'.',
                    _ => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
                };
                before = byte;
                is_usual
            })
        }
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let port = &text[host.len()..];
    is_host
        && (1..=MAX_HOST_BYTES).contains(&host.len())
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

// === The path ===

/// Whether the path after its first slash is forwarded as it is, and is not odd. Nearly all are.
fn is_ordinary(path: &str) -> bool {
    let mut before = b'/';
    path.bytes().all(|byte| {
        let unusual = match byte {
            b'%' | b'\\' | 0..=0x1f | 0x7f => true,
            b'/' | b'.' => before == b'/',
            _ => false,
        };
        before = byte;
        !unusual
    })
}

/// The spelling that is forwarded of a path, given without its first slash, and the first reason why it is odd.
#[cold]
fn rewritten(path: &str) -> (String, Option<OddPath>) {
    // All bytes stay or are replaced by ASCII, so that the result is UTF-8 as well.
    let mut forwarded = b"/".to_vec();
    let mut odd = None;
    let mut segments = path.split('/').peekable();
    while let Some(raw) = segments.next() {
        let is_last = segments.peek().is_none();
        let segment = decoded(raw, &mut odd);
        match &segment[..] {
            b"" if !is_last => {
                odd = odd.or(Some(OddPath::EmptySegment));
                forwarded.push(b'/');
            }
            b"." => {}
            b".." => {
                if !leave_segment(&mut forwarded) {
                    odd = odd.or(Some(OddPath::AboveRoot));
                }
            }
            _ => {
                forwarded.extend_from_slice(&segment);
                if !is_last {
                    forwarded.push(b'/');
                }
            }
        }
    }
    (String::from_utf8_lossy(&forwarded).into_owned(), odd)
}

/// Removes the last segment of a path that ends with a slash, and the empty ones after it, which [`PathNormalization`] does
/// not count. Returns whether there was one.
fn leave_segment(path: &mut Vec<u8>) -> bool {
    let end = path.iter().rposition(|byte| *byte != b'/');
    let start = end.and_then(|end| path[..end].iter().rposition(|byte| *byte == b'/'));
    path.truncate(start.map_or(1, |slash| slash + 1));
    end.is_some()
}

/// A segment with its unreserved characters decoded (RFC 3986 2.3), which mean the same encoded and not.
fn decoded(raw: &str, odd: &mut Option<OddPath>) -> Vec<u8> {
    let mut segment = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let encoded = match after {
            [high, low, ..] if *byte == b'%' => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let reason = odd_byte(*byte, encoded);
        *odd = odd.or(reason);
        match encoded {
            None => segment.push(*byte),
            Some(encoded) => {
                rest = &after[2..];
                let is_unreserved = encoded.is_ascii_alphanumeric() || b"-._~".contains(&encoded);
                // After a stray percent sign a digit would make an encoded byte of it.
                let is_ambiguous = encoded.is_ascii_hexdigit() && has_stray_percent(&segment);
                match is_unreserved && !is_ambiguous {
                    true => segment.push(encoded),
                    false => segment.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]),
                }
            }
        }
    }
    segment
}

fn odd_byte(byte: u8, encoded: Option<u8>) -> Option<OddPath> {
    match (byte, encoded) {
        (b'\\', None) => Some(OddPath::Backslash),
        (0..=0x1f | 0x7f, None) | (_, Some(0..=0x1f | 0x7f)) => Some(OddPath::Control),
        (b'%', None) => Some(OddPath::StrayPercent),
        (_, Some(b'/')) => Some(OddPath::EncodedSlash),
        (_, Some(b'\\')) => Some(OddPath::EncodedBackslash),
        _ => None,
    }
}

/// Whether a segment ends with a percent sign that encodes nothing, and at most one digit.
fn has_stray_percent(segment: &[u8]) -> bool {
    matches!(segment, [.., b'%']) || matches!(segment, [.., b'%', digit] if digit.is_ascii_hexdigit())
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

// === impl TargetFault, OddPath ===

impl TargetFault {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            TargetFault::Method => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for TargetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetFault::Method => "this method is not forwarded",
            TargetFault::NoHost => "the request has no Host",
            TargetFault::SeveralHosts => "the request has more than one Host",
            TargetFault::BadHost => "the Host is not a host and a port",
            TargetFault::HostsDisagree => "Host and :authority differ",
            TargetFault::Scheme => "the scheme is neither http nor https",
            TargetFault::NoPath => "the target is not a path",
        })
    }
}

impl std::error::Error for TargetFault {}

impl fmt::Display for OddPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OddPath::EncodedSlash => "the path has an encoded slash",
            OddPath::EncodedBackslash | OddPath::Backslash => "the path has a backslash",
            OddPath::Control => "the path has a control character",
            OddPath::EmptySegment => "the path has an empty segment",
            OddPath::AboveRoot => "the path climbs above its root",
            OddPath::StrayPercent => "the path has a percent sign that encodes nothing",
        })
    }
}

#[cfg(test)]
mod tests;
