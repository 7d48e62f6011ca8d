//! Values of attributes as header fields for upstreams. Clients choose them, so nothing in them may end a field.

use http::HeaderValue;
use tollgate_rules::attribute_text::shorten;

/// The most bytes of a value that are sent. A longer one is its beginning and its digest.
const MAX_VALUE_BYTES: usize = 512;

/// The longest header value: every byte may be an escape.
#[cfg(test)]
pub(super) const MAX_HEADER_BYTES: usize = 3 * MAX_VALUE_BYTES;

/// A value as visible ASCII. Other bytes, spaces and `%` itself are percent-encoded, so that different values stay
/// different.
pub fn header_value(text: &str) -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let text = shorten(text, MAX_VALUE_BYTES);
    let mut encoded = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..=b' ' | 0x7f.. => {
                let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                encoded.extend([b'%', digits[0], digits[1]]);
            }
            _ => encoded.push(byte),
        }
    }
    // Visible ASCII is always accepted.
    HeaderValue::from_bytes(&encoded).unwrap_or(HeaderValue::from_static(""))
}
