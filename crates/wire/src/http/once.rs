//! `Idempotency-Key`: a name under which a request is decided once.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Request;

use tollgate_http::problem::Problem;

static NAMES: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// The idempotency key of a request.
///
/// # Errors
/// If it is invalid, or there are several.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut first = None;
    for value in NAMES.iter().flat_map(|name| headers.get_all(name)) {
        let key = key(value).ok_or_else(bad)?;
        if first.is_some_and(|other| other != key) {
            let detail = "there is more than one idempotency key; send one, as Idempotency-Key or as X-Idempotency-Key";
            return Err(Problem::bad_request("bad_idempotency_key", detail));
        }
        first = Some(key);
    }
    Ok(first)
}

/// The text of a key, without the quotes of a structured field's string (RFC 9651).
fn key(value: &HeaderValue) -> Option<&str> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    let is_visible = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.trim().is_empty();
    Some(text).filter(|text| is_visible(text) && text.len() <= Request::MAX_ONCE_BYTES)
}

fn bad() -> Problem {
    let detail = format!(
        "the idempotency key is invalid; send 1 to {} visible ASCII characters, such as a UUID",
        Request::MAX_ONCE_BYTES
    );
    Problem::bad_request("bad_idempotency_key", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers, and their key or the error.
    type Row<'r> = (&'r [(&'r str, &'r str)], Result<Option<&'r str>, &'r str>);

    #[test]
    fn keys_are_read_as_they_are_meant() {
        let long = "k".repeat(255);
        let too_long = "k".repeat(256);
        let rows: [Row<'_>; 18] = [
            (&[], Ok(None)),
            (&[("other", "x")], Ok(None)),
            (&[("idempotency-key", "8e03978e")], Ok(Some("8e03978e"))),
            (&[("x-idempotency-key", "8e03978e")], Ok(Some("8e03978e"))),
            (&[("idempotency-key", "\"8e03978e\"")], Ok(Some("8e03978e"))),
            (&[("idempotency-key", "\"a\"b\"")], Ok(Some("a\"b"))),
            (&[("idempotency-key", "order 7, second try")], Ok(Some("order 7, second try"))),
            (&[("idempotency-key", &long)], Ok(Some(&long))),
            (&[("idempotency-key", "a"), ("x-idempotency-key", "\"a\"")], Ok(Some("a"))),
            (&[("idempotency-key", "a"), ("idempotency-key", "a")], Ok(Some("a"))),
            (&[("idempotency-key", "a"), ("x-idempotency-key", "b")], Err("more than one")),
            (&[("idempotency-key", "a"), ("idempotency-key", "b")], Err("more than one")),
            (&[("idempotency-key", "")], Err("1 to 255")),
            (&[("idempotency-key", "\"\"")], Err("1 to 255")),
            (&[("idempotency-key", "\" \"")], Err("1 to 255")),
            (&[("idempotency-key", "\"a")], Err("1 to 255")),
            (&[("idempotency-key", "schlüssel")], Err("1 to 255")),
            (&[("idempotency-key", &too_long)], Err("1 to 255")),
        ];
        for (given, expected) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            match (from_headers(&headers), expected) {
                (Ok(found), expected) => assert_eq!(Ok(found), expected, "{given:?}"),
                (Err(problem), Err(words)) => {
                    assert!(problem.detail.contains(words), "{given:?}: {}", problem.detail);
                    assert_eq!((problem.status.as_u16(), problem.code), (400, "bad_idempotency_key"));
                }
                (Err(problem), Ok(_)) => panic!("{given:?}: {}", problem.detail),
            }
        }
    }
}
