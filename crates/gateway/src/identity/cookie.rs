//! Cookies (RFC 6265).

use http::HeaderMap;
use http::header::COOKIE;

use crate::single::{Repeated, single};

/// The value of a cookie. HTTP/2 clients send several `Cookie` fields.
pub(super) fn value<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, Repeated> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    single(pairs.filter_map(pair).filter(|(own, _)| *own == name.as_bytes()).map(|(_, value)| value))
}

/// The name and the value. Quotes around a value are removed, as most servers do: both spellings are one caller.
fn pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'=', pair)?;
    let value = pair[end + 1..].trim_ascii();
    let bare = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    Some((pair[..end].trim_ascii(), bare))
}
