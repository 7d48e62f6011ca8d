//! The texts of values.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn text_is_used_as_it_is() {
    for value in ["", "alice", "Zürich 東京 🚲", r"C:\xampp\x", r"\", r"\\", r"\x7f", r"\xFF", r"\xf"] {
        assert_eq!(as_text(value.as_bytes()), Some(value));
        assert!(is_plain(value));
    }
    for length in [4092, 4093, 4096] {
        let value = "x".repeat(length);
        assert_eq!(as_text(value.as_bytes()), Some(&*value));
        assert!(is_plain(&value));
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
        assert_eq!(text(value), expected, "{value:?}");
    }
    assert!(!is_plain(r"\xff"));
}

#[test]
fn long_texts_are_their_beginning_and_a_digest() {
    let long = "k".repeat(5_000);
    assert_eq!(as_text(long.as_bytes()), None);
    let short = text(long.as_bytes()).into_owned();
    assert_eq!(short.len(), Request::MAX_TEXT_BYTES);
    let (beginning, digest) = short.split_once(MARKER).unwrap();
    assert!(long.starts_with(beginning));
    // From `head -c 5000 /dev/zero | tr '\0' k | sha256sum`.
    assert_eq!(digest, "622b8b1d5094d382aa519349554c0ea84a43c90b4aad7ddfae8f338690c7f7ea");
    assert_ne!(text(format!("{long}k").as_bytes()), short);
    // The same text, sent as it is, is another value.
    assert_eq!(as_text(short.as_bytes()), None);
    assert_ne!(text(short.as_bytes()), short);
    // No character is cut.
    for width in 0..4 {
        let wide = format!("{}{}", "k".repeat(width), "🚲".repeat(2_000));
        let short = text(wide.as_bytes()).into_owned();
        assert!((4093..=4096).contains(&short.len()), "{}", short.len());
        assert_ne!(text(short.as_bytes()), short);
    }
    // Bytes are escaped first.
    let bytes = vec![0xff; 3_000];
    assert!(text(&bytes).starts_with(r"\xff\xff") && text(&bytes).len() <= 4096);
    assert_ne!(text(&bytes), text(&bytes[1..]));
}

#[test]
fn a_shorter_bound_is_for_names() {
    assert_eq!(shorten("name", 255), "name");
    let short = shorten(&"n".repeat(256), 255).into_owned();
    assert_eq!((short.len(), shorten(&short, 255) == short), (255, false));
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

    #[test]
    fn texts_are_bounded_and_known_from_the_value_alone(value in value(), times in 0_usize..1_000) {
        let value = value.repeat(times);
        let found = text(&value);
        prop_assert!(found.len() <= Request::MAX_TEXT_BYTES);
        prop_assert_eq!(as_text(&value).is_some(), matches!(found, Cow::Borrowed(_)));
    }
}
