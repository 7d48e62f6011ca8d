//! `Idempotency-Key`: a name under which a request is decided once.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Request;
use tollgate_rules::attribute_text::{escaped, shorten};
use tollgate_telemetry::metrics::{Repair, Repairs};

static NAMES: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// The idempotency key of a request. It may be a client's, so it is never an error: an empty key is none, a long one is
/// its beginning and a digest, and of several different keys none counts.
pub(super) fn from_headers<'h>(headers: &'h HeaderMap, repairs: &mut Repairs) -> Option<Cow<'h, str>> {
    let mut values = NAMES.iter().flat_map(|name| headers.get_all(name));
    let first = key(values.next()?, repairs);
    if values.all(|value| key(value, repairs) == first) {
        return first;
    }
    repairs.add(Repair::BadName);
    None
}

/// The text of a key, without the quotes of a structured field's string (RFC 9651).
fn key<'h>(value: &'h HeaderValue, repairs: &mut Repairs) -> Option<Cow<'h, str>> {
    let bytes = value.as_bytes();
    let bytes = bytes.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        repairs.add(Repair::BadName);
        return None;
    }
    let is_usual = bytes.len() <= Request::MAX_ONCE_BYTES && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    match str::from_utf8(bytes) {
        Ok(text) if is_usual => Some(Cow::Borrowed(text)),
        _ => {
            repairs.add(Repair::BadName);
            Some(Cow::Owned(shorten(&escaped(bytes), Request::MAX_ONCE_BYTES).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers, their key, and whether it was repaired.
    type Row<'r> = (&'r [(&'r str, &'r str)], Option<&'r str>, bool);

    #[test]
    fn keys_are_read_as_they_are_meant() {
        let long = "k".repeat(255);
        let too_long = "k".repeat(256);
        let digest = shorten(&too_long, 255);
        let rows: [Row<'_>; 18] = [
            (&[], None, false),
            (&[("other", "x")], None, false),
            (&[("idempotency-key", "8e03978e")], Some("8e03978e"), false),
            (&[("x-idempotency-key", "8e03978e")], Some("8e03978e"), false),
            (&[("idempotency-key", "\"8e03978e\"")], Some("8e03978e"), false),
            (&[("idempotency-key", "\"a\"b\"")], Some("a\"b"), false),
            (&[("idempotency-key", "order 7, second try")], Some("order 7, second try"), false),
            (&[("idempotency-key", &long)], Some(&long), false),
            (&[("idempotency-key", "a"), ("x-idempotency-key", "\"a\"")], Some("a"), false),
            (&[("idempotency-key", "a"), ("idempotency-key", "a")], Some("a"), false),
            (&[("idempotency-key", "\"a")], Some("\"a"), false),
            (&[("idempotency-key", "a"), ("x-idempotency-key", "b")], None, true),
            (&[("idempotency-key", "a"), ("idempotency-key", "b")], None, true),
            (&[("idempotency-key", "")], None, true),
            (&[("idempotency-key", "\"\"")], None, true),
            (&[("idempotency-key", "\" \"")], None, true),
            (&[("idempotency-key", "schlüssel")], Some("schlüssel"), true),
            (&[("idempotency-key", &too_long)], Some(&digest), true),
        ];
        for (given, expected, is_repaired) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let mut repairs = Repairs::default();
            assert_eq!(from_headers(&headers, &mut repairs).as_deref(), expected, "{given:?}");
            assert_eq!(!repairs.is_empty(), is_repaired, "{given:?}");
        }
    }
}
