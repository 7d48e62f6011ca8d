//! Whatever the clients of a gateway send is decided.

use tollgate_telemetry::metrics::Repair;

use super::{Envoy, ResponseExtras, all, ask, envoy_with, request};

/// A security limit by address, and one by key, which most requests are over.
const RULES: &str = "
domain: d
rules:
  - {name: by-key, key: [api_key], limit: 2/365d}
  - {name: by-address, key: [remote_address], limit: 3/365d, policy: security}
  - {name: tokens, key: [user], limit: 5/365d, cost: tokens}
";

#[track_caller]
fn check(envoy: &Envoy, descriptors: &[&str], expected: &str) {
    assert_eq!(all(&ask(envoy, &request("d", descriptors)))[0], expected, "{descriptors:?}");
}

#[track_caller]
fn repairs(envoy: &Envoy, expected: &[(Repair, u64)]) {
    let counted = Repair::ALL.map(|repair| (repair, envoy.gate().metrics().repairs(repair)));
    let counted: Vec<_> = counted.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, expected);
}

#[test]
fn long_values_have_counters_of_their_own() {
    let envoy = envoy_with(RULES, ResponseExtras::default());
    let long = "k".repeat(5_000);
    let (one, other) = (format!("api_key={long}"), format!("api_key={long}2"));
    for expected in ["OK", "OK", "OVER_LIMIT"] {
        check(&envoy, &[&one], expected);
    }
    check(&envoy, &[&other], "OK");
    repairs(&envoy, &[(Repair::LongText, 4)]);
}

#[test]
fn rules_that_do_not_look_at_a_bad_value_are_not_affected_by_it() {
    let envoy = envoy_with(RULES, ResponseExtras::default());
    let long = format!("api_key={},remote_address=192.0.2.9", "k".repeat(5_000));
    for expected in ["OK", "OK", "OVER_LIMIT"] {
        check(&envoy, &[&long], expected);
    }
    let mut bytes = request("d", &["remote_address=192.0.2.9:4711", "api_key=x", "other=y"]);
    bytes.descriptors[2].entries[0].value = bytes::Bytes::from_static(b"\xff");
    assert_eq!(all(&ask(&envoy, &bytes))[0], "OK");
    for key in ["1", "2"] {
        check(&envoy, &["remote_address=192.0.2.9", &format!("api_key={key}")], "OVER_LIMIT");
    }
}

#[test]
fn a_malformed_cost_counts_1() {
    let envoy = envoy_with(RULES, ResponseExtras::default());
    for _ in 0..5 {
        check(&envoy, &["user=u,tokens=abc"], "OK");
    }
    check(&envoy, &["user=u,tokens=abc"], "OVER_LIMIT");
    check(&envoy, &["user=other,tokens=99999999999999999999999"], "OVER_LIMIT");
    repairs(&envoy, &[(Repair::BadCost, 6)]);
}

#[test]
fn a_request_under_the_key_of_another_is_its_own() {
    let envoy = envoy_with(RULES, ResponseExtras::default());
    let long = "o".repeat(300);
    for once in ["o", &long] {
        let once = format!("tollgate.once={once}");
        check(&envoy, &["api_key=k", &once], "OK");
        check(&envoy, &["api_key=k", &once], "OK");
    }
    check(&envoy, &["api_key=k×2", "tollgate.once=o"], "OVER_LIMIT");
    check(&envoy, &["api_key=k", "tollgate.once="], "OVER_LIMIT");
    check(&envoy, &["api_key=k", "tollgate.once=o", "tollgate.once=p"], "OVER_LIMIT");
    repairs(&envoy, &[(Repair::BadName, 4), (Repair::KeyConflict, 1)]);
    assert_eq!(envoy.gate().metrics().conflicts.get(), 1);
}

#[test]
fn too_much_is_left_out() {
    let envoy = envoy_with(RULES, ResponseExtras::default());
    let many: String = (0..50).map(|number| format!("q{number}=x,")).collect();
    let many = format!("{many}api_key=k");
    check(&envoy, &[&many], "OK");
    let mut crowd = vec!["a=b"; 100];
    crowd[0] = "api_key=k";
    let response = ask(&envoy, &request("d", &crowd));
    assert_eq!((response.overall_code, response.statuses.len()), (1, 64));
    check(&envoy, &["api_key=k"], "OVER_LIMIT");
    repairs(&envoy, &[(Repair::TooMany, 2)]);
}

#[test]
fn what_cannot_be_decided_is_answered_by_policy() {
    let rule = |number, policy| format!("  - {{name: r{number}, key: [a{number}], limit: 9/365d, policy: {policy}}}\n");
    let request = |entries: usize| {
        let entries: String = (0..entries).map(|number| format!("a{number}=x,")).collect();
        request("d", &[&entries])
    };
    for (policy, expected) in [("comfort", "OK"), ("security", "OVER_LIMIT")] {
        let rules: String = (0..40).map(|number| rule(number, policy)).collect();
        let envoy = envoy_with(&format!("domain: d\nrules:\n{rules}"), ResponseExtras::default());
        assert_eq!(all(&ask(&envoy, &request(32)))[0], "OK");
        assert_eq!(all(&ask(&envoy, &request(40)))[0], expected, "{policy}");
        repairs(&envoy, &[(Repair::TooMany, 1), (Repair::Undecided, 1)]);
        let open = envoy.undecided(Some("elsewhere"), 1);
        assert_eq!((open.overall_code, open.statuses.len()), (1, 1));
        assert_eq!(all(&envoy.undecided(None, 0))[0], expected);
    }
}

#[test]
fn values_that_are_not_utf_8_are_counted_and_matched_by_their_escaped_text() {
    let rules = r"
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: user, value: 'caf\xe9', rate_limit: {unit: day, requests_per_unit: 1}}
";
    let envoy = envoy_with(rules, ResponseExtras::default());
    let check = |values: &[&'static [u8]], expected: &[&str]| {
        let mut request = request("d", &vec!["user=x"; values.len()]);
        for (descriptor, value) in request.descriptors.iter_mut().zip(values) {
            descriptor.entries[0].value = bytes::Bytes::from_static(value);
        }
        assert_eq!(all(&ask(&envoy, &request)), expected, "{values:?}");
    };
    check(&[b"\xff", b"u", b"\xfe"], &["OK", "OK 1/2 DAY", "OK 1/2 DAY", "OK 1/2 DAY"]);
    check(&[b"u", b"\xff"], &["OK", "OK 0/2 DAY", "OK 0/2 DAY"]);
    check(&[b"\xff"], &["OVER_LIMIT", "OVER_LIMIT 0/2 DAY"]);
    check(&[br"\xff"], &["OK", "OK 1/2 DAY"]);
    check(&[b"caf\xe9"], &["OK", "OK 0/1 DAY"]);
    check(&["café".as_bytes()], &["OK", "OK 1/2 DAY"]);
}
