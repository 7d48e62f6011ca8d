//! Timeouts that callers send: there is no point in waiting longer for the store.

use http::{HeaderMap, HeaderName};
use tollgate::Span;

/// The timeout of a gRPC call. Envoy sends the `timeout` of its filter, 20 ms by default.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The timeout of an HTTP request from Envoy.
const EXPECTED_MS: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// The largest number of digits in a `grpc-timeout`.
const MAX_DIGITS: usize = 8;

/// The timeout of a gRPC call. Invalid values are ignored.
pub(crate) fn from_grpc(headers: &HeaderMap) -> Option<Span> {
    grpc_timeout(headers.get(GRPC_TIMEOUT)?.as_bytes())
}

/// The timeout of an HTTP request.
///
/// Only for callers that send checks themselves: where a proxy forwards its client's headers, the client could make the
/// store look slow.
pub(crate) fn from_http(headers: &HeaderMap) -> Option<Span> {
    // To Envoy, 0 means no timeout.
    let millis = digits(headers.get(EXPECTED_MS)?.as_bytes()).filter(|millis| *millis > 0)?;
    millis.checked_mul(1_000).map(Span::from_micros)
}

/// Parses up to eight digits and a unit.
fn grpc_timeout(text: &[u8]) -> Option<Span> {
    let (unit, count) = text.split_last()?;
    let count = digits(count).filter(|_| count.len() <= MAX_DIGITS)?;
    Some(Span::from_micros(match unit {
        b'H' => count * 3_600_000_000,
        b'M' => count * 60_000_000,
        b'S' => count * 1_000_000,
        b'm' => count * 1_000,
        b'u' => count,
        b'n' => count / 1_000,
        _ => return None,
    }))
}

fn digits(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_what_is_none_says_nothing() {
        let rows: [(&str, Option<u64>); 17] = [
            ("1H", Some(3_600_000_000)),
            ("2M", Some(120_000_000)),
            ("3S", Some(3_000_000)),
            ("20m", Some(20_000)),
            ("19876u", Some(19_876)),
            ("20000000n", Some(20_000)),
            ("999n", Some(0)),
            ("0m", Some(0)),
            ("99999999H", Some(359_999_996_400_000_000)),
            ("100000000m", None),
            ("20", None),
            ("m", None),
            ("", None),
            ("-1m", None),
            ("+1m", None),
            ("1.5S", None),
            ("20ms", None),
        ];
        for (text, micros) in rows {
            assert_eq!(grpc_timeout(text.as_bytes()).map(Span::as_micros), micros, "{text}");
        }
        assert_eq!(grpc_timeout("2\u{b5}m".as_bytes()), None);
    }

    #[test]
    fn each_has_a_header_of_its_own() {
        let mut headers = HeaderMap::new();
        assert_eq!((from_grpc(&headers), from_http(&headers)), (None, None));
        headers.insert("grpc-timeout", "20m".parse().unwrap());
        assert_eq!((from_grpc(&headers), from_http(&headers)), (Some(Span::from_micros(20_000)), None));
        for (text, micros) in [("15", Some(15_000)), ("0", None), ("", None), ("15ms", None), ("-1", None)] {
            headers.insert("x-envoy-expected-rq-timeout-ms", text.parse().unwrap());
            assert_eq!(from_http(&headers).map(Span::as_micros), micros, "{text}");
        }
        headers.insert("x-envoy-expected-rq-timeout-ms", u64::MAX.to_string().parse().unwrap());
        assert_eq!(from_http(&headers), None);
    }
}
