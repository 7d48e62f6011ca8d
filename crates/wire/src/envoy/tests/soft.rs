//! Soft limits: requests pass with a signal.

use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;

use super::super::json::write;
use super::{Envoy, HeaderNames, ResponseExtras, all, ask, envoy_with, request};

const RULES: &str = "
domain: d
rules:
  - {name: soft-a, key: [a], limit: 1/day, mode: soft}
  - {name: soft-b, key: [b], limit: 1/day, mode: soft}
  - {name: secret, key: [a], limit: 1/day, mode: soft, headers: hidden}
  - {name: paced, key: [p], limit: 1/day, burst: 5, algorithm: leaky_bucket}
";

fn envoy(metadata: bool, headers: bool) -> Envoy {
    let names = || HeaderNames { limit: "L".to_owned(), remaining: "R".to_owned(), reset: "T".to_owned() };
    envoy_with(RULES, ResponseExtras { client: None, headers: headers.then(names), metadata })
}

/// The metadata, as `/json` writes it.
fn metadata(response: &RateLimitResponse) -> serde_json::Value {
    let written: serde_json::Value = serde_json::from_str(&write(response)).unwrap();
    written.get("dynamicMetadata").cloned().unwrap_or_default()
}

fn signal(response: &RateLimitResponse) -> Option<&str> {
    response.response_headers_to_add.iter().find(|one| one.key == "x-ratelimit-signal").map(|one| &*one.value)
}

#[test]
fn soft_limits_are_signalled() {
    let envoy = envoy(true, true);
    let both = request("d", &["a=1", "b=1"]);
    let first = ask(&envoy, &both);
    assert_eq!((metadata(&first), signal(&first)), (serde_json::Value::Null, None));
    let second = ask(&envoy, &both);
    assert_eq!(all(&second), ["OK", "OK 0/1 DAY soft-a", "OK 0/1 DAY soft-b"]);
    // The third is hidden.
    assert_eq!(metadata(&second), serde_json::json!({"tollgate_signals": ["soft-a", "soft-b"]}));
    assert_eq!(signal(&second), Some("soft-a, soft-b"));
}

#[test]
fn signals_are_reported_if_enabled() {
    for (with_metadata, with_headers) in [(false, false), (true, false), (false, true)] {
        let envoy = envoy(with_metadata, with_headers);
        ask(&envoy, &request("d", &["b=1"]));
        let response = ask(&envoy, &request("d", &["b=1"]));
        assert_eq!(response.dynamic_metadata.is_some(), with_metadata);
        assert_eq!(signal(&response).is_some(), with_headers);
    }
}

#[test]
fn a_delay_is_a_number_of_milliseconds() {
    let envoy = envoy(true, false);
    assert_eq!(metadata(&ask(&envoy, &request("d", &["p=1"]))), serde_json::Value::Null);
    let fields = metadata(&ask(&envoy, &request("d", &["p=1"])));
    let delay = fields["tollgate_delay_ms"].as_u64().unwrap();
    // The first unit is replenished within the day.
    assert!((86_000_000..=86_400_000).contains(&delay), "{fields}");
    assert_eq!(fields.get("tollgate_signals"), None);
}
