//! Descriptor values as text.
//!
//! A value is often a header of some client, which can be any bytes; rules and counters use text. A UTF-8 value is used
//! as it is. Other values are escaped: each byte that is not part of a UTF-8 character is written as `\xNN`, with two
//! lower-case hexadecimal digits, and each backslash as `\\`.
//!
//! Different values have different texts: escaping is reversible, and a text that contains something like `\xff`, which
//! could be mistaken for an escaped byte, is escaped too (its backslashes are doubled).

use std::fmt::Write as _;

/// The value, if it is text without need for escaping.
#[inline]
pub(super) fn as_text(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?;
    (!value.contains(&b'\\') || !has_escaped_byte(value)).then_some(text)
}

/// The value, escaped.
#[cold]
pub(super) fn escape(value: &[u8]) -> String {
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
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The text under which a value is counted.
    fn text(value: &[u8]) -> String {
        as_text(value).map_or_else(|| escape(value), str::to_owned)
    }

    #[test]
    fn text_is_used_as_it_is() {
        for value in ["", "alice", "Zürich 東京 🚲", r"C:\xampp\x", r"\", r"\\", r"\x7f", r"\xFF", r"\xf"] {
            assert_eq!(as_text(value.as_bytes()), Some(value));
        }
    }

    #[test]
    fn other_bytes_are_escaped() {
        let rows: [(&[u8], &str); 6] = [
            (b"\xff", r"\xff"),
            (b"caf\xe9", r"caf\xe9"),
            (b"a\\b\xff\\", r"a\\b\xff\\"),
            (b"\xc3\xbc\xc3", r"ü\xc3"),
            (b"\xed\xa0\x80", r"\xed\xa0\x80"),
            // Text that looks like an escaped byte.
            (br"\xff", r"\\xff"),
        ];
        for (value, expected) in rows {
            assert_eq!(as_text(value), None, "{value:?}");
            assert_eq!(escape(value), expected, "{value:?}");
        }
    }

    /// Reverses [`escape`].
    fn unescape(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            (bytes, rest) = match (first, after) {
                (b'\\', [b'\\', after @ ..]) => ([&bytes[..], b"\\"].concat(), after),
                (b'\\', [b'x', high, low, after @ ..]) => {
                    let digits = String::from_utf8(vec![*high, *low]).unwrap();
                    ([&bytes[..], &[u8::from_str_radix(&digits, 16).unwrap()]].concat(), after)
                }
                (byte, after) => ([&bytes[..], &[*byte]].concat(), after),
            };
        }
        bytes
    }

    /// Values of the pieces that matter for escaping.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(&b"\\"[..]),
            Just(&b"x"[..]),
            Just(&b"ff"[..]),
            Just(&b"\xff"[..]),
            Just(&b"\xc3"[..]),
            Just(&b"\xbc"[..]),
            Just(&b"7"[..]),
        ];
        vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn escaping_can_be_undone(value in value()) {
            prop_assert_eq!(unescape(&escape(&value)), value);
        }

        #[test]
        fn a_text_that_is_used_as_it_is_is_no_escaped_value(value in value()) {
            if as_text(&value).is_none() {
                let escaped = escape(&value);
                prop_assert_eq!(as_text(escaped.as_bytes()), None);
            }
        }

        #[test]
        fn a_value_does_not_collide_with_its_own_text(value in value()) {
            let shown = text(&value);
            prop_assert_eq!(text(shown.as_bytes()) == shown, shown.as_bytes() == value);
        }
    }
}
