//! The text under which a value is matched and counted.
//!
//! A value is often a header of some client: any bytes, of any length. Rules and counters use text of at most
//! [`Request::MAX_TEXT_BYTES`]. A UTF-8 value of that length is used as it is. Others are rewritten, never rejected: a
//! request that can't be decided would be a way past the limits.
//!
//! - Each byte that is not part of a UTF-8 character is written as `\xNN`, with two lower-case hexadecimal digits, and
//!   each backslash as `\\`.
//! - A text that is too long keeps its beginning, followed by `…sha256:` and the SHA-256 digest of the whole text.
//!
//! Different values have different texts, and the text depends on the value alone, on every server. So a text that
//! looks like a rewritten one is rewritten too.

use std::borrow::Cow;
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use tollgate_core::Request;

/// Stands between the beginning of a long text and its digest.
const MARKER: &str = "…sha256:";
/// The length of a digest in hexadecimal digits.
const DIGITS: usize = 64;
/// A shortened text may have up to three bytes less than the maximum, since no character is cut.
const CHARACTER: usize = 4;

/// The value, if it is used as it is.
#[inline]
pub fn as_text(value: &[u8]) -> Option<&str> {
    if value.len() > Request::MAX_TEXT_BYTES - CHARACTER {
        return long_text(value);
    }
    let text = str::from_utf8(value).ok()?;
    (!value.contains(&b'\\') || !has_escaped_byte(value)).then_some(text)
}

/// Whether a text is used as it is.
#[inline]
pub fn is_plain(text: &str) -> bool {
    text.len() <= Request::MAX_TEXT_BYTES - CHARACTER && !text.as_bytes().contains(&b'\\')
        || as_text(text.as_bytes()).is_some()
}

#[cold]
fn long_text(value: &[u8]) -> Option<&str> {
    match text(value) {
        Cow::Borrowed(text) => Some(text),
        Cow::Owned(_) => None,
    }
}

/// The text of a value.
pub fn text(value: &[u8]) -> Cow<'_, str> {
    match escaped(value) {
        Cow::Borrowed(text) => shorten(text, Request::MAX_TEXT_BYTES),
        Cow::Owned(text) => Cow::Owned(shorten(&text, Request::MAX_TEXT_BYTES).into_owned()),
    }
}

/// A value of any length as text: the first half of [`text`]. [`shorten`] is the second.
pub fn escaped(value: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(value) {
        Ok(text) if !has_escaped_byte(value) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(value)),
    }
}

/// A text of at most `max` bytes: the text itself, or its beginning and its digest. `max` has room for a digest.
pub fn shorten(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max && !is_shortened(text, max) {
        return Cow::Borrowed(text);
    }
    let beginning = text.floor_char_boundary(max.saturating_sub(MARKER.len() + DIGITS));
    let mut shortened = String::with_capacity(max);
    shortened.push_str(&text[..beginning]);
    shortened.push_str(MARKER);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Writing to a String can't fail.
        let _ = write!(shortened, "{byte:02x}");
    }
    Cow::Owned(shortened)
}

/// Whether a text looks like one that [`shorten`] returns for `max`.
fn is_shortened(text: &str, max: usize) -> bool {
    text.len() + CHARACTER > max
        && text.len().checked_sub(DIGITS).and_then(|end| text.get(..end)).is_some_and(|front| front.ends_with(MARKER))
}

/// The value with its bytes escaped.
#[cold]
fn escape(value: &[u8]) -> String {
    let mut escaped = String::with_capacity(2 * value.len());
    for chunk in value.utf8_chunks() {
        for (number, part) in chunk.valid().split('\\').enumerate() {
            escaped.push_str(if number > 0 { r"\\" } else { "" });
            escaped.push_str(part);
        }
        for byte in chunk.invalid() {
            // Writing to a String can't fail.
            let _ = write!(escaped, r"\x{byte:02x}");
        }
    }
    escaped
}

/// Whether a text contains what [`escape`] writes for a byte: invalid bytes are all above 0x7f.
#[cold]
fn has_escaped_byte(text: &[u8]) -> bool {
    let is_escape = |bytes: &[u8]| matches!(bytes, [b'\\', b'x', b'8' | b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f']);
    text.windows(4).any(is_escape)
}

#[cfg(test)]
mod tests;
