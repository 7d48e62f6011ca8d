//! Bodies: three forms, and the errors of others.

use proptest::prelude::*;
use serde_json::json;

use super::super::check_request::CheckRequest;
use super::{RULES, Server, ruleset};
use tollgate::{Descriptor, ReceiptWish, Request};

/// What a body is parsed as, in words.
fn read(body: &str) -> String {
    let parsed = match CheckRequest::parse(body.as_bytes()) {
        Ok(parsed) => parsed,
        Err(problem) => return format!("{}: {}", problem.code, problem.detail),
    };
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
    format!("{} cost {cost} {wish}{}", domain.unwrap_or("-"), lists.join(""))
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
    ];
    for (body, expected) in rows {
        assert_eq!(read(body), expected, "{body}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let many: String = (0..33).map(|n| format!(r#""a{n}": "x","#)).collect();
    let many = format!("{{{} \"cost\": 1}}", many);
    let crowd = format!(r#"{{"descriptors": [{}{{"entries": []}}]}}"#, r#"{"entries": []},"#.repeat(64));
    let rows = [
        ("", "empty_body: the body is empty; send a JSON object such as"),
        (" \n", "empty_body"),
        ("{", "bad_json: the body is invalid: EOF while parsing an object at line 1 column 1"),
        ("{\n\"a\": x}", "bad_json: the body is invalid: expected value at line 2 column 6"),
        ("{} {}", "bad_json: the body is invalid: trailing characters at line 1 column 4"),
        ("[]", "bad_member: the body is invalid: invalid type: sequence, expected a JSON object"),
        ("7", "bad_member"),
        (
            r#"{"attributes": {"a": null}}"#,
            "bad_member: the body is invalid: `a` must be a string, a number, true or false at line 1",
        ),
        (r#"{"attributes": {"a": {}}}"#, "`a` must be a string"),
        (r#"{"a": [1]}"#, "`a` must be a string"),
        (r#"{"domain": null}"#, "`domain` must be a string"),
        (r#"{"attributes": "x"}"#, "expected `attributes` as an object of names and values"),
        (r#"{"descriptors": {}}"#, "expected `descriptors` as a list"),
        (r#"{"descriptors": [1]}"#, "expected a descriptor: an object with `entries`"),
        (r#"{"descriptors": [[[], 1]]}"#, "expected a descriptor: an object with `entries`"),
        (r#"{"descriptors": [{"entries": [["a", "1"]]}]}"#, "expected an entry: an object with `key` and `value`"),
        (r#"{"descriptors": [{"entries": [], "limit": 1}]}"#, "unknown field `limit`"),
        (r#"{"descriptors": [{"entries": [{"key": "a"}]}]}"#, "missing field `value`"),
        (r#"{"descriptors": [{"entries": [{"key": "a", "value": null}]}]}"#, "must be a string"),
        (r#"{"cost": -1}"#, "`cost` must be a whole number, at least 0 and below 2^64, not `-1`"),
        (r#"{"cost": 1.5}"#, "`cost` must be a whole number"),
        (r#"{"cost": 18446744073709551616}"#, "`cost` must be a whole number"),
        (r#"{"cost": ""}"#, "`cost` must be a whole number"),
        (r#"{"attributes": {}, "api_key": "k1"}"#, "unknown member `api_key` next to `attributes` or `descriptors`"),
        (r#"{"attributes": {}, "descriptors": []}"#, "it has both `attributes` and `descriptors`"),
        (r#"{"a": 1, "a": 2}"#, "`a` occurs twice"),
        (r#"{"attributes": {"a": 1, "a": 2}}"#, "`a` occurs twice"),
        (r#"{"cost": 1, "cost": 2}"#, "`cost` occurs twice"),
        (r#"{"receipt": 1}"#, "`receipt` must be true or false, not `1`"),
        (r#"{"receipt": null}"#, "`receipt` must be true or false, not `null`"),
        (r#"{"attributes": {}, "receipt": "yes"}"#, "`receipt` must be true or false, not `\"yes\"`"),
        (r#"{"receipt": true, "receipt": true}"#, "`receipt` occurs twice"),
        (r#"{"a": "\ud800"}"#, "half of a surrogate pair"),
        (&many, "there are too many attributes; send at most 32"),
        (&crowd, "there are too many descriptors; send at most 64"),
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
    let long = json!({"domain": "shop", "attributes": {"api_key": "k".repeat(4097)}}).to_string();
    server.check(&long).await.assert_problem(400, "too_long", "at most 4096 bytes");
    let entries = vec![json!({"key": "a", "value": "b"}); 33];
    let many = json!({"domain": "shop", "descriptors": [{"entries": entries}]}).to_string();
    server.check(&many).await.assert_problem(400, "too_many", "at most 32");

    let costly = Server::new("domain: d\nrules: [{name: tokens, key: [], limit: 5/day, cost: tokens}]\n");
    let bad = costly.check(r#"{"tokens": "x"}"#).await;
    bad.assert_problem(400, "bad_cost", "rule tokens takes the cost from attribute tokens");
    assert_eq!(costly.check(r#"{"tokens": 5}"#).await.json()["remaining"], 0);
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
        if let Ok(parsed) = CheckRequest::parse(body.as_bytes()) {
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
