//! Parameters of a query or a form: `name=value&…`, percent-encoded, with `+` for a space.

use std::borrow::Cow;

use crate::single::{Repeated, single};

/// The value of a parameter, decoded. What is not an escape is taken as it is: `%zz` is `%zz`.
///
/// # Errors
/// If there are several different ones.
pub(crate) fn parameter<'q>(query: &'q [u8], name: &str) -> Result<Option<Cow<'q, [u8]>>, Repeated> {
    single(query.split(|byte| *byte == b'&').filter_map(|pair| {
        let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let (key, value) = (&pair[..end], pair.get(end + 1..).unwrap_or_default());
        (*decoded(key) == *name.as_bytes()).then(|| decoded(value))
    }))
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr2(b'%', b'+', text) else { return Cow::Borrowed(text) };
    let mut decoded = text[..first].to_vec();
    let mut rest = &text[first..];
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, behind @ ..]) if let Some(value) = escape(*high, *low) => {
                decoded.push(value);
                rest = behind;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

/// The byte of two hexadecimal digits.
fn escape(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let rows: &[(&str, Option<&[u8]>)] = &[
            ("", None),
            ("key=a", Some(b"a")),
            ("x=1&key=a&key=%61", Some(b"a")),
            ("key", Some(b"")),
            ("key=&key", Some(b"")),
            ("keys=a&Key=b", None),
            ("%6bey=a%20b+c", Some(b"a b c")),
            ("key=a=b", Some(b"a=b")),
            ("key=%zz%4%", Some(b"%zz%4%")),
            ("key=%ff%0a%00", Some(b"\xff\n\0")),
            ("&&key=1", Some(b"1")),
        ];
        for (query, expected) in rows {
            let found = parameter(query.as_bytes(), "key").unwrap();
            assert_eq!(found.as_deref(), *expected, "{query}");
        }
        for query in ["key=a&key=b", "key=&key=b", "key=a&x=1&%6bey=b", "key&key=b"] {
            assert_eq!(parameter(query.as_bytes(), "key"), Err(Repeated), "{query}");
        }
    }
}
