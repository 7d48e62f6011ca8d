//! `Idempotency-Key`: the caller's name for a request, under which it is decided once.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Request;

use super::problem::Problem;

static NAMES: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// The key that a request came with.
///
/// # Errors
/// If it can't be one, or there are several.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut found = None;
    for value in NAMES.iter().flat_map(|name| headers.get_all(name)) {
        let key = key(value).ok_or_else(bad)?;
        if found.is_some_and(|known| known != key) {
            let detail = "there is more than one idempotency key; send one, as Idempotency-Key or as X-Idempotency-Key";
            return Err(Problem::bad_request("bad_idempotency_key", detail));
        }
        found = Some(key);
    }
    Ok(found)
}

/// The text of a key; that of a structured field's string (RFC 9651) without the quotes around it.
fn key(value: &HeaderValue) -> Option<&str> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    let is_visible = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.trim().is_empty();
    Some(text).filter(|text| is_visible(text) && text.len() <= Request::LONGEST_ONCE)
}

fn bad() -> Problem {
    let detail = format!(
        "the idempotency key can't be used; send 1 to {} visible ASCII characters, such as a UUID",
        Request::LONGEST_ONCE
    );
    Problem::bad_request("bad_idempotency_key", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers, and the key that they have or what is told.
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
            match (of(&headers), expected) {
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
