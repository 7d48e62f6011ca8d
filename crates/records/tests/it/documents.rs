//! Documents: what they mean, and their faults.

use tollgate_records::documents::{EmergencyDocument, QuotaDocument};
use tollgate_records::{FieldFaults, Rfc3339};

#[test]
fn all_faults_of_a_document_are_reported() {
    let text = r#"{"overrides": [
        {"descriptor": "endpoint:x", "requests_per_unit": 5, "unit": "fortnight"},
        {"requests_per_unit": 5, "unit": "minute"},
        {"descriptor": "a:b", "rule": "c", "limit": "5"},
        {"rule": "a", "limit": "5/m", "unit": "minute"},
        {"rule": "b", "requests_per_unit": 5, "unit": "day", "billing_anchor": 3},
        {"rule": "c", "requests_per_unit": 5, "unit": "month", "billing_anchor": 32},
        {"rule": "d", "requests_per_unit": 9007199254740993, "unit": "year"},
        {"rule": "e", "requests_per_unit": 5, "unit": "month", "zone": "Mars/Base"},
        {"rule": "f", "requests_per_unit": 5, "unit": "month", "billing_anchor": "2025-01-17", "zone": "Europe/Berlin"},
        {"rule": "f", "limit": "unlimited"}
    ], "effective_at": "2026-01-02T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z"}"#;
    let document: QuotaDocument = serde_json::from_str(text).unwrap();
    let mut faults = FieldFaults::default();
    document.to_quota(&mut faults);
    let places: Vec<&str> = faults.0.iter().map(|fault| fault.at.as_str()).collect();
    let expected = [
        "expires_at",
        "overrides[0].unit",
        "overrides[1].descriptor",
        "overrides[2].descriptor",
        "overrides[2].limit",
        "overrides[3].limit",
        "overrides[4].billing_anchor",
        "overrides[5].billing_anchor",
        "overrides[7].requests_per_unit",
        "overrides[9]",
    ];
    assert_eq!(places, expected, "{:#?}", faults.0);

    let text = r#"{"percent": 50, "limit": "1/m", "reason": " ", "expires_at": "2026-01-01T00:00:00Z"}"#;
    let mut faults = FieldFaults::default();
    assert_eq!(serde_json::from_str::<EmergencyDocument>(text).unwrap().to_emergency(&mut faults), None);
    assert_eq!(faults.0.iter().map(|fault| &*fault.at).collect::<Vec<_>>(), ["reason", "percent"]);
}

#[test]
fn an_unknown_field_is_reported_with_its_position_and_the_fields_that_exist() {
    for (text, expected) in [
        (r#"{"tier": "pro", "teir": 1}"#, "unknown field `teir`, expected one of `tier`, `home`, `overrides`"),
        (
            r#"{"overrides": [{"rule": "a", "limt": "1/m"}]}"#,
            "unknown field `limt`, expected one of `descriptor`, `rule`",
        ),
        (r#"{"overrides": [{"rule": "a", "limt": "1/m"}]}"#, "at line 1 column 35"),
        (r#"{"overrides": [{"rule": "a", "requests_per_unit": -1}]}"#, "invalid value: integer `-1`"),
        (r#"{"effective_at": "tomorrow"}"#, "\"tomorrow\" is not an RFC 3339 time"),
        (r#"{"effective_at": "1969-12-31T23:59:59Z"}"#, "\"1969-12-31T23:59:59Z\" is before 1970"),
    ] {
        let error = serde_json::from_str::<QuotaDocument>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let text = r#"{"callers": "a*", "billing_anchor": 3, "expires_at": "2026-01-01T00:00:00Z", "reason": "r"}"#;
    let error = serde_json::from_str::<EmergencyDocument>(text).unwrap_err().to_string();
    let expected =
        "unknown field `billing_anchor`, expected one of `callers`, `descriptor`, `rule`, `requests_per_unit`";
    assert!(error.contains(expected) && error.contains("at line 1 column 34"), "{error}");
}

#[test]
fn times_are_read_in_any_zone_and_written_in_utc() {
    let time: Rfc3339 = "2025-02-01T00:00:00+01:00".parse().unwrap();
    assert_eq!(time.to_string(), "2025-01-31T23:00:00Z");
}
