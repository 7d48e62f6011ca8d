//! Tokens in requests.

use std::fmt::Write as _;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::SHA256;

use super::cookie;
use crate::model::TokenSource;
use crate::single::{Repeated, single};

/// The first bytes of a digest that are used: enough that nobody finds two tokens with the same.
const DIGEST_BYTES: usize = 16;

/// The token of `Authorization: Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, Repeated> {
    Ok(field(headers, &AUTHORIZATION)?.and_then(|value| {
        let end = memchr::memchr(b' ', value)?;
        let token = value[end..].trim_ascii();
        (value[..end].eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
    }))
}

/// The value of a field.
pub(super) fn field<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h [u8]>, Repeated> {
    single(headers.get_all(name).iter().map(HeaderValue::as_bytes))
}

/// What stands for a token in rules, counters, logs and headers, since the token itself is a secret. Operators compute
/// it as `printf %s TOKEN | sha256sum | head -c 32`.
pub(super) fn digest(token: &[u8]) -> String {
    let mut text = String::with_capacity(7 + 2 * DIGEST_BYTES);
    text.push_str("sha256:");
    for byte in ring::digest::digest(&SHA256, token).as_ref().iter().take(DIGEST_BYTES) {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The JSON web token of a request. Whatever is not text is none.
pub(super) fn token<'h>(source: &TokenSource, headers: &'h HeaderMap) -> Result<Option<&'h str>, Repeated> {
    let token = match source {
        TokenSource::Bearer => bearer(headers)?,
        TokenSource::Header(name) => field(headers, name)?,
        TokenSource::Cookie(name) => cookie::value(headers, name)?,
    };
    Ok(token.and_then(|token| str::from_utf8(token).ok()).filter(|token| !token.is_empty()))
}
