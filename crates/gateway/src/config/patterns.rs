//! The hosts and paths of routes.

use std::net::Ipv6Addr;

use http::Method;
use tollgate_http::request_target::PathNormalization;
use tollgate_rules::problem::{TextFault, quoted};

use super::values;
use crate::model::{HostPattern, PathPattern, Segment};

/// The most segments of a path.
const MAX_SEGMENTS: usize = 32;

/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// The longest host, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// `POST /v1/charges`, or a path alone.
pub(super) fn request(given: &str) -> Result<(Option<Method>, PathPattern), TextFault> {
    match given.split_once(' ') {
        // A path alone may have a space too.
        Some((method, rest)) if !given.starts_with('/') => {
            Ok((Some(values::method(method)?), path(rest.trim_start())?))
        }
        _ => Ok((None, path(given)?)),
    }
}

/// A path: `/v1/orders/{id}`, `/v1/*`.
pub(super) fn path(given: &str) -> Result<PathPattern, TextFault> {
    let Some(inner) = given.strip_prefix('/') else {
        let remedy = format!("write a slash before it: /{given}");
        return Err(TextFault::new(format!("{} does not begin with a slash", quoted(given)), remedy));
    };
    if given.len() > MAX_PATH_BYTES || inner.split('/').count() > MAX_SEGMENTS {
        let remedy = format!("write at most {MAX_SEGMENTS} segments and {MAX_PATH_BYTES} bytes");
        return Err(TextFault::new(format!("{} is too long", quoted(given)), remedy));
    }
    if given.contains('\\') || given.contains(char::is_control) {
        let message = format!("{} has a backslash or a control character", quoted(given));
        return Err(TextFault::new(message, "write a path without them: requests with them are refused"));
    }
    let normal = PathNormalization::default().path(given.as_bytes());
    if normal != given.as_bytes() {
        let message =
            format!("no request has the path {}, since paths are matched in their normal form", quoted(given));
        return Err(TextFault::new(message, format!("write {}", quoted(&String::from_utf8_lossy(&normal)))));
    }
    let (inner, has_rest) = match inner.strip_suffix('*').map(|inner| inner.strip_suffix('/').unwrap_or(inner)) {
        Some("") if inner == "*" => return Ok(PathPattern { segments: Vec::new(), has_rest: true }),
        Some(before) if inner.ends_with("/*") => (before, true),
        _ => (inner, false),
    };
    let mut segments = Vec::new();
    for text in inner.split('/') {
        let segment = segment(text, given)?;
        if matches!(segment, Segment::Parameter(_)) && segments.contains(&segment) {
            return Err(TextFault::new(format!("{} is in this path twice", quoted(text)), "write another name"));
        }
        segments.push(segment);
    }
    Ok(PathPattern { segments, has_rest })
}

fn segment(text: &str, path: &str) -> Result<Segment, TextFault> {
    if text.contains('*') {
        let message = format!("{} has a `*` that is not its last segment", quoted(path));
        return Err(TextFault::new(
            message,
            "write `{name}` for one segment, and `/*` at the end for any further ones",
        ));
    }
    match text.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        Some(name) => values::name("a parameter", name).map(Segment::Parameter),
        None if text.contains(['{', '}']) => {
            let message = format!("{} is only in part a parameter", quoted(text));
            Err(TextFault::new(message, "write a whole segment as `{name}`"))
        }
        None => Ok(Segment::Literal(text.to_owned())),
    }
}

/// Whether a pattern matches a single path.
pub(super) fn is_literal(pattern: &PathPattern) -> bool {
    !pattern.has_rest && pattern.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
}

/// A host: `api.example.com`, `*.example.com`. In lower case, and without a trailing dot.
pub(super) fn host(given: &str) -> Result<HostPattern, TextFault> {
    let lower = given.to_ascii_lowercase();
    let lower = lower.strip_suffix('.').unwrap_or(&lower);
    let fault = |remedy: String| Err(TextFault::new(format!("{} is not a host", quoted(given)), remedy));
    if let Some(address) = lower.strip_prefix('[').and_then(|host| host.strip_suffix(']'))
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Ok(HostPattern::Exact(lower.to_owned()));
    }
    let is_host = |host: &str| {
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        host.len() <= MAX_HOST_BYTES && host.split('.').all(is_label)
    };
    match lower.strip_prefix("*.") {
        _ if lower == "*" => fault("leave out `host` for any host".to_owned()),
        Some(rest) if is_host(rest) => Ok(HostPattern::Suffix(lower[1..].to_owned())),
        None if is_host(lower) => Ok(HostPattern::Exact(lower.to_owned())),
        _ => match lower.rsplit_once(':') {
            Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => {
                fault(format!("write it without the port: {host}"))
            }
            _ => fault("write for instance api.example.com or *.example.com".to_owned()),
        },
    }
}
