//! The messages as JSON.

use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::super::json::{read, write};
use super::{HeaderNames, ResponseExtras, ask, descriptor, envoy, request, with_limit};

#[track_caller]
fn reads(text: &str, expected: &RateLimitRequest) {
    assert_eq!(read(text.as_bytes()).unwrap(), (expected.clone(), false), "{text}");
}

#[test]
fn requests_in_both_spellings() {
    let mut expected = request("d", &["a=b×7", "c=d"]);
    expected.hits_addend = 3;
    let (a, c) = (r#"{"entries":[{"key":"a","value":"b"}]"#, r#"{"entries":[{"key":"c","value":"d"}]}"#);
    reads(&format!(r#"{{"domain":"d","hitsAddend":3,"descriptors":[{a},"hitsAddend":"7"}},{c}]}}"#), &expected);
    reads(&format!(r#"{{"domain":"d","hits_addend":"3","descriptors":[{a},"hits_addend":7}},{c}]}}"#), &expected);
    let mut limited = with_limit("a=b", 5, 2);
    limited.domain = "d".to_owned();
    for limit in [r#"{"requestsPerUnit":5,"unit":"MINUTE"}"#, r#"{"requests_per_unit":"5","unit":2}"#] {
        reads(&format!(r#"{{"domain":"d","descriptors":[{a},"limit":{limit}}}]}}"#), &limited);
    }
    reads(r#"{"domain":null,"descriptors":null,"hitsAddend":null}"#, &RateLimitRequest::default());
    let empty = RateLimitRequest { descriptors: vec![descriptor("a=")], ..RateLimitRequest::default() };
    reads(r#"{"descriptors":[{"entries":[{"key":"a"}]}]}"#, &empty);
}

#[test]
fn invalid_requests_are_errors() {
    let rows = [
        ("", "EOF"),
        ("5", "invalid type"),
        (r#"{"domain":5}"#, "invalid type: integer"),
        (r#"{"domian":"d"}"#, "unknown field `domian`"),
        (r#"["d"]"#, "an object with `domain` and `descriptors`"),
        (r#"{"descriptors":[[null,null]]}"#, "a descriptor: an object with `entries`"),
        (r#"{"descriptors":[{"entries":[["a","b"]]}]}"#, "an entry: an object with `key` and `value`"),
        (r#"{"descriptors":[{"limit":[1,"DAY"]}]}"#, "a limit: an object"),
        (r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "SECOND, MINUTE"),
        (r#"{"descriptors":[{"entries":[{"key":"a","value":1}]}]}"#, "expected a string"),
    ];
    for (text, expected) in rows {
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_clients_choose_is_no_error() {
    for cost in ["-1", "1.5", "\"abc\"", "true", "[]"] {
        let text =
            format!(r#"{{"domain":"d","descriptors":[{{"entries":[],"hitsAddend":{cost}}}],"hitsAddend":{cost}}}"#);
        let mut expected = request("d", &["×1"]);
        expected.hits_addend = 1;
        assert_eq!(read(text.as_bytes()).unwrap(), (expected, true), "{text}");
    }
    assert_eq!(read(br#"{"hitsAddend":4294967296}"#).unwrap().0.hits_addend, u32::MAX);
    for value in [&b"caf\xe9"[..], br"caf\udce9"] {
        let text = [br#"{"descriptors":[{"entries":[{"key":"a","value":""#, value, br#""}]}]}"#].concat();
        assert_eq!(*read(&text).unwrap().0.descriptors[0].entries[0].value, *b"caf\xe9");
    }
}

#[test]
fn answers() {
    let names = HeaderNames { limit: "L".to_owned(), remaining: "R".to_owned(), reset: "T".to_owned() };
    let envoy = envoy(ResponseExtras { client: None, headers: Some(names), metadata: true }, false);
    let plain = write(&ask(&envoy, &request("test-domain", &["key2=value3", "key6=x"])));
    assert_eq!(plain, r#"{"overallCode":"OK","statuses":[{"code":"OK"},{"code":"OK","limitRemaining":4294967295}]}"#);
    let whole = write(&ask(&envoy, &request("test-domain", &["meta=x×3", "key4=x"])));
    let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["statuses"][1]["currentLimit"]["name"], "four");
    assert_eq!(whole["statuses"][1]["currentLimit"]["unit"], "DAY");
    assert_eq!(whole["statuses"][1]["currentLimit"]["requestsPerUnit"], 1);
    assert_eq!(whole["statuses"][1].get("limitRemaining"), None);
    assert!(whole["statuses"][1]["durationUntilReset"].as_str().unwrap().ends_with('s'));
    assert_eq!(whole["responseHeadersToAdd"][1], serde_json::json!({"key": "R", "value": "0"}));
    assert_eq!(whole["dynamicMetadata"]["team"], "payments");
}
