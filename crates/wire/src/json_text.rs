//! JSON strings as bytes.
//!
//! A gateway may write a header of its client into JSON as it is, with bytes that are not UTF-8, or as halves of
//! surrogate pairs: Python writes the byte 0xff as `\udcff`. Both stand for that byte here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The bytes of a string.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonBytes(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for JsonBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonBytes, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = JsonBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<JsonBytes, E> {
                Ok(JsonBytes(text.as_bytes().to_vec()))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<JsonBytes, E> {
                Ok(JsonBytes(without_surrogates(bytes)))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

/// The bytes with each half of a surrogate pair that stands for a byte (U+DC80 to U+DCFF) replaced by it. Other halves
/// stay as they are; they are not UTF-8 either.
fn without_surrogates(bytes: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, others)) = rest.split_first() {
        let (byte, after) = match rest {
            [0xed, 0xb2, low @ 0x80..=0xbf, after @ ..] => (*low, after),
            [0xed, 0xb3, low @ 0x80..=0xbf, after @ ..] => (low + 0x40, after),
            _ => (first, others),
        };
        found.push(byte);
        rest = after;
    }
    found
}

/// A JSON document as UTF-8, if it has other bytes: they are written as halves of surrogate pairs.
#[cold]
pub(crate) fn as_utf8(document: &[u8]) -> Option<Vec<u8>> {
    str::from_utf8(document).err()?;
    let mut text = Vec::with_capacity(2 * document.len());
    for chunk in document.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for byte in chunk.invalid() {
            text.extend_from_slice(format!(r"\udc{byte:02x}").as_bytes());
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_bytes() {
        let rows: [(&[u8], &[u8]); 8] = [
            (br#""plain""#, b"plain"),
            (br#""a\tb\u00fc""#, "a\tbü".as_bytes()),
            (b"\"caf\xe9\"", b"caf\xe9"),
            (br#""caf\udce9""#, b"caf\xe9"),
            (br#""\udc80\udcbf\udcc0\udcff""#, b"\x80\xbf\xc0\xff"),
            (br#""\ud83d\udeb2""#, "🚲".as_bytes()),
            // A half that stands for no byte.
            (br#""\ud83d""#, b"\xed\xa0\xbd"),
            (b"\"\"", b""),
        ];
        for (json, bytes) in rows {
            assert_eq!(serde_json::from_slice::<JsonBytes>(json).unwrap().0, bytes, "{json:?}");
            let text = as_utf8(json);
            let text = text.as_deref().unwrap_or(json);
            assert_eq!(serde_json::from_str::<JsonBytes>(str::from_utf8(text).unwrap()).unwrap().0, bytes, "{json:?}");
        }
        assert!(serde_json::from_slice::<JsonBytes>(b"[1]").is_err());
    }
}
