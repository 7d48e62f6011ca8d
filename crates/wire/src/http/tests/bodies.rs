//! Bodies: three forms, and the errors of others.

use proptest::prelude::*;
use serde_json::json;

use super::super::check_request::CheckRequest;
use super::{PathNormalization, RULES, Server, ruleset};
use tollgate::{Descriptor, Limiter, MemoryConfig, ReceiptWish, Request};
use tollgate_telemetry::metrics::{Repair, Repairs};

/// What a body is parsed as, in words.
fn read(body: &str) -> String {
    let limiter = Limiter::new(ruleset(RULES), MemoryConfig::default().build().into());
    let mut parsed = match CheckRequest::parse(body.as_bytes()) {
        Ok(parsed) => parsed,
        Err(problem) => return format!("{}: {}", problem.code, problem.detail),
    };
    let mut repairs = Repairs::default();
    parsed.repair(PathNormalization::default(), &limiter, &mut repairs).unwrap();
    let (pairs, _) = parsed.pairs().unwrap();
    let descriptors = parsed.descriptors(&pairs);
    let Request { domain, descriptors, cost, receipt, .. } = parsed.request(&descriptors);
    let wish = match receipt {
        ReceiptWish::Never => "no receipt ",
        ReceiptWish::IfNeeded => "",
        ReceiptWish::Always => "receipt ",
    };
    let list = |one: &Descriptor<'_>| {
        let entries: Vec<_> = one.entries.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let hits = one.hits.map(|hits| format!("×{hits}")).unwrap_or_default();
        format!("[{}]{hits}", entries.join(","))
    };
    let lists: Vec<_> = descriptors.iter().map(list).collect();
    let repaired: String =
        Repair::ALL.into_iter().filter(|one| repairs.contains(*one)).map(|one| format!(" {}", one.name())).collect();
    format!("{} cost {cost} {wish}{}{repaired}", domain.unwrap_or("-"), lists.join(""))
}

#[test]
fn three_forms_are_read() {
    let rows = [
        (r#"{"attributes": {"api_key": "k1"}}"#, "- cost 1 [api_key=k1]"),
        (r#"{"domain": "shop", "attributes": {"b": "2", "a": "1"}, "cost": 7}"#, "shop cost 7 [b=2,a=1]"),
        (r#"{"cost": "7", "attributes": {}}"#, "- cost 7 []"),
        (r#"{"cost": 0, "attributes": {}}"#, "- cost 0 []"),
        (
            r#"{"attributes": {"n": 1.50, "big": 18446744073709551616, "t": true}}"#,
            "- cost 1 [n=1.50,big=18446744073709551616,t=true]",
        ),
        (r#"{"attributes": {"a\n": "ü\"\u00e4"}}"#, "- cost 1 [a\n=ü\"ä]"),
        (
            r#"{"user_id": "u_42", "endpoint": "/v1/charges", "cost": 1}"#,
            "- cost 1 [user_id=u_42,endpoint=/v1/charges]",
        ),
        (r#"{"user_id": 42, "domain": "shop"}"#, "shop cost 1 [user_id=42]"),
        (" {} ", "- cost 1 "),
        (r#"{"descriptors": []}"#, "- cost 1 "),
        (
            r#"{"descriptors": [{"entries": [{"key": "a", "value": "1"}, {"key": "a", "value": 2}], "hits_addend": "3"}, {"entries": []}]}"#,
            "- cost 1 [a=1,a=2]×3[]",
        ),
        (r#"{"descriptors": [{"entries": []}], "hits_addend": 5, "domain": "shop"}"#, "shop cost 5 []"),
        (r#"{"hits_addend": 5}"#, "- cost 1 [hits_addend=5]"),
        (r#"{"a": "1", "receipt": true}"#, "- cost 1 receipt [a=1]"),
        (r#"{"attributes": {"receipt": "mine"}, "receipt": true}"#, "- cost 1 receipt [receipt=mine]"),
        (r#"{"descriptors": [], "receipt": true}"#, "- cost 1 receipt "),
        (r#"{"a": "1", "receipt": false}"#, "- cost 1 [a=1]"),
        (r#"{"a": null}"#, "- cost 1 []"),
        (r#"{"attributes": {"a": null, "b": 1}}"#, "- cost 1 [b=1]"),
        (r#"{"attributes": {"a": {"x": [1]}}}"#, r#"- cost 1 [a={"x": [1]}]"#),
        (r#"{"a": [1]}"#, "- cost 1 [a=[1]]"),
        (r#"{"descriptors": [{"entries": [{"key": "a", "value": null}]}]}"#, "- cost 1 [a=]"),
        (r#"{"cost": -1}"#, "- cost 1  bad_cost"),
        (r#"{"cost": 1.5, "a": 1}"#, "- cost 1 [a=1] bad_cost"),
        (r#"{"cost": null, "a": 1}"#, "- cost 1 [a=1] bad_cost"),
        (r#"{"cost": "", "a": 1}"#, "- cost 1 [a=1] bad_cost"),
        (r#"{"cost": 18446744073709551616, "a": 1}"#, "- cost 18446744073709551615 [a=1]"),
        (r#"{"descriptors": [{"entries": [], "hits_addend": "x"}], "hits_addend": "y"}"#, "- cost 1 []×1 bad_cost"),
        (r#"{"a": "\ud800"}"#, r"- cost 1 [a=\xed\xa0\x80] not_text"),
        (r#"{"a": "caf\udce9"}"#, r"- cost 1 [a=caf\xe9] not_text"),
        (r#"{"a": "\\xff"}"#, r"- cost 1 [a=\\xff] not_text"),
        (r#"{"a": "C:\\x"}"#, r"- cost 1 [a=C:\x]"),
        (r#"{"remote_address": "203.0.113.7:443"}"#, "- cost 1 [remote_address=203.0.113.7]"),
        (
            r#"{"path": "//x/../%6fr?q", "method": "post", "endpoint": "get /a//b"}"#,
            "- cost 1 [path=/or,method=POST,endpoint=GET /a/b]",
        ),
        (r#"{"path": "/\u0061%ff"}"#, r"- cost 1 [path=/a\xff] not_text"),
    ];
    for (body, expected) in rows {
        assert_eq!(read(body), expected, "{body}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let rows = [
        ("", "empty_body: the body is empty; send a JSON object such as"),
        (" \n", "empty_body"),
        ("{", "bad_json: the body is invalid: EOF while parsing an object at line 1 column 1"),
        ("{\n\"a\": x}", "bad_json: the body is invalid: expected value at line 2 column 6"),
        ("{} {}", "bad_json: the body is invalid: trailing characters at line 1 column 4"),
        ("[]", "bad_member: the body is invalid: invalid type: sequence, expected a JSON object"),
        ("7", "bad_member"),
        (r#"{"domain": null}"#, "`domain` must be a string"),
        (r#"{"attributes": "x"}"#, "expected `attributes` as an object of names and values"),
        (r#"{"descriptors": {}}"#, "expected `descriptors` as a list"),
        (r#"{"descriptors": [1]}"#, "expected a descriptor: an object with `entries`"),
        (r#"{"descriptors": [[[], 1]]}"#, "expected a descriptor: an object with `entries`"),
        (r#"{"descriptors": [{"entries": [["a", "1"]]}]}"#, "expected an entry: an object with `key` and `value`"),
        (r#"{"descriptors": [{"entries": [], "limit": 1}]}"#, "unknown field `limit`"),
        (r#"{"descriptors": [{"entries": [{"key": "a"}]}]}"#, "missing field `value`"),
        (r#"{"descriptors": [{"entries": [{"key": null, "value": "a"}]}]}"#, "must be a string"),
        (r#"{"attributes": {}, "a": null}"#, "unknown member `a` next to"),
        (r#"{"attributes": {}, "api_key": "k1"}"#, "unknown member `api_key` next to `attributes` or `descriptors`"),
        (r#"{"attributes": {}, "descriptors": []}"#, "it has both `attributes` and `descriptors`"),
        (r#"{"a": 1, "a": 2}"#, "`a` occurs twice"),
        (r#"{"attributes": {"a": 1, "a": 2}}"#, "`a` occurs twice"),
        (r#"{"cost": 1, "cost": 2}"#, "`cost` occurs twice"),
        (r#"{"receipt": 1}"#, "`receipt` must be true or false, not `1`"),
        (r#"{"receipt": null}"#, "`receipt` must be true or false, not `null`"),
        (r#"{"attributes": {}, "receipt": "yes"}"#, "`receipt` must be true or false, not `\"yes\"`"),
        (r#"{"receipt": true, "receipt": true}"#, "`receipt` occurs twice"),
    ];
    for (body, expected) in rows {
        let message = read(body);
        assert!(message.contains(expected), "{body}: {message}");
    }
}

#[tokio::test]
async fn what_cannot_be_decided_is_a_problem() {
    let two = format!("{RULES}---\ndomain: other\nrules: [{{name: x, key: [], limit: 1/day}}]\n");
    let server = Server::new(&two);
    server.check("{").await.assert_problem(400, "bad_json", "line 1 column 1");
    server.check("{}").await.assert_problem(400, "no_domain", "`shop`, `other`");
    let unknown = server.check(r#"{"domain": "nope"}"#).await;
    unknown.assert_problem(404, "unknown_domain", "there is no domain `nope`; the rules have `shop`, `other`");
}

#[tokio::test]
async fn what_clients_send_is_decided() {
    let server = Server::new(RULES);
    let long = json!({"attributes": {"api_key": "k".repeat(4097)}}).to_string();
    let values = (0..33).map(|n| (format!("q{n}"), json!("x"))).chain([("api_key".to_owned(), json!("many"))]);
    let many = json!({"attributes": serde_json::Map::from_iter(values)}).to_string();
    let large =
        json!({"attributes": {"api_key": "large", "a": "x".repeat(60_000), "b": "y".repeat(240_000)}}).to_string();
    let crowd = format!(
        r#"{{"descriptors": [{{"entries": [{{"key": "api_key", "value": "crowd"}}]}}{}]}}"#,
        r#", {"entries": []}"#.repeat(99)
    );
    for body in [&long, &many, &large, &crowd] {
        let statuses =
            [server.check(body).await.status, server.check(body).await.status, server.check(body).await.status];
        assert_eq!((statuses, server.check(body).await.status), ([200, 200, 200], 429), "{}", &body[..60]);
    }
    let bytes = server.check_bytes(b"{\"api_key\": \"caf\xe9\", \"cost\": 2}").await;
    assert_eq!(bytes.json()["remaining"], 1);
    assert_eq!(server.check(r#"{"api_key": "caf\udce9"}"#).await.json()["remaining"], 0);
    let metrics = server.http.state.gate.metrics();
    let counts = [Repair::LongText, Repair::NotText, Repair::TooMany].map(|repair| metrics.repairs(repair));
    assert_eq!(counts, [8, 2, 8]);

    let costly = Server::new("domain: d\nrules: [{name: tokens, key: [], limit: 5/day, cost: tokens}]\n");
    assert_eq!(costly.check(r#"{"tokens": "x"}"#).await.json()["remaining"], 4);
    assert_eq!(costly.check(r#"{"tokens": 4}"#).await.json()["remaining"], 0);
}

#[tokio::test]
async fn what_is_too_large_is_answered_by_policy() {
    let body = format!(r#"{{"a": "{}"}}"#, "x".repeat(600_000));
    for (policy, status, text) in
        [("comfort", 200, r#"{"allowed":true,"source":"assumed"}"#), ("security", 503, r#""code":"REDUCED_CAPACITY""#)]
    {
        let rules = format!("domain: d\nrules: [{{name: r, key: [a], limit: 5/day, policy: {policy}}}]\n");
        let server = Server::new(&rules);
        let reply = server.check(&body).await;
        assert_eq!((reply.status, reply.header("connection")), (status, None), "{policy}");
        assert!(reply.body.contains(text), "{}", reply.body);
        assert_eq!(server.http.state.gate.metrics().repairs(Repair::Undecided), 1);
    }
}

#[tokio::test]
async fn known_domains_are_named_up_to_a_bound() {
    let rules: String =
        (0..25).map(|n| format!("---\ndomain: d{n}\nrules: [{{name: x, key: [], limit: 1/day}}]\n")).collect();
    let reply = Server::new(&rules).check(r#"{"domain": "nope"}"#).await;
    reply.assert_problem(404, "unknown_domain", "`d19` and 5 more");
    assert!(!reply.body.contains("d20"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any input is parsed or rejected with a message; what is parsed can be resolved.
    #[test]
    fn no_body_makes_it_stumble(body in body()) {
        if let Ok(mut parsed) = CheckRequest::parse(body.as_bytes()) {
            let limiter = Limiter::new(ruleset(RULES), MemoryConfig::default().build().into());
            let _ = parsed.repair(PathNormalization::default(), &limiter, &mut Repairs::default());
            let (pairs, _) = parsed.pairs().unwrap_or_default();
            let descriptors = parsed.descriptors(&pairs);
            let rules = ruleset(RULES);
            let _ = rules.resolve(&parsed.request(&descriptors), Default::default());
        }
    }

    #[test]
    fn no_bytes_make_it_stumble(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = CheckRequest::parse(&body);
    }
}

#[test]
fn no_body_is_answered_by_a_failure() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let _entered = runtime.enter();
    let server = Server::new(RULES);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let tried = runner.run(&body(), |body| {
        for path in ["/v1/ratelimit/check", "/v1/ratelimit/explain", "/v1/ratelimit/settle"] {
            let reply = runtime.block_on(server.ask("POST", path, &[], &body));
            prop_assert!(matches!(reply.status, 200 | 400 | 404 | 429), "{} {}", reply.status, reply.body);
            serde_json::from_str::<serde_json::Value>(&reply.body).unwrap();
        }
        Ok(())
    });
    tried.unwrap();
}

/// Bodies that are nearly valid.
fn body() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("domain".to_owned()),
        Just("cost".to_owned()),
        Just("attributes".to_owned()),
        Just("descriptors".to_owned()),
        Just("entries".to_owned()),
        Just("key".to_owned()),
        Just("value".to_owned()),
        Just("api_key".to_owned()),
        Just("hits_addend".to_owned()),
        Just("receipt".to_owned()),
        Just("outcome".to_owned()),
        ".{0,4}",
    ];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|it| json!(it)),
        any::<i64>().prop_map(|it| json!(it)),
        any::<f64>().prop_map(|it| json!(it)),
        ".{0,6}".prop_map(|it| json!(it)),
        Just(json!("shop")),
    ];
    let value = leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    });
    (value, any::<proptest::sample::Index>(), any::<bool>()).prop_map(|(value, cut, is_cut)| {
        let text = value.to_string();
        let end = text.floor_char_boundary(cut.index(text.len() + 1));
        if is_cut { text[..end].to_owned() } else { text }
    })
}
