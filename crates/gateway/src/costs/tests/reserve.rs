//! Costs before a request is forwarded.

use http::HeaderName;
use proptest::prelude::*;

use super::*;
use crate::model::GraphQlBounds;

const BOUNDS: GraphQlBounds = GraphQlBounds { depth: 12, aliases: 10, batch: 3, list: 20, most: 1000 };

fn cost(reserve: CostSource) -> CostConfig {
    CostConfig { attribute: "tokens".into(), reserve, otherwise: 7, settle: None }
}

#[track_caller]
fn check(source: CostSource, headers: &[(&str, &str)], body: Option<&[u8]>, expected: u64) {
    assert_eq!(reserve(&cost(source), &request("/", headers), body), Ok(expected), "{headers:?} {body:?}");
}

#[test]
fn numbers_and_headers() {
    check(CostSource::Number(3), &[], None, 3);
    let header = || CostSource::Header(HeaderName::from_static("x-cost"));
    check(header(), &[("x-cost", "12")], None, 12);
    check(header(), &[("x-cost", " 12 ")], None, 12);
    for bad in ["", "x", "-1", "+1", "1.5", "9007199254740992", "99999999999999999999999"] {
        check(header(), &[("x-cost", bad)], None, 7);
    }
    check(header(), &[], None, 7);
}

#[test]
fn lengths_are_rounded_up() {
    let length = || CostSource::Length { bytes: 1000 };
    check(length(), &[("content-length", "0")], None, 0);
    check(length(), &[("content-length", "1")], None, 1);
    check(length(), &[("content-length", "1000")], None, 1);
    check(length(), &[("content-length", "1001")], None, 2);
    check(length(), &[], None, 7);
    check(length(), &[], Some(&[0; 1500]), 2);
    check(CostSource::Length { bytes: 0 }, &[("content-length", "5")], None, 5);
}

#[test]
fn lengths_that_no_header_says_are_counted_unless_another_cost_is_settled() {
    let none = HeaderMap::new();
    let length = || cost(CostSource::Length { bytes: 1000 });
    assert_eq!(counted_length(&[cost(CostSource::Number(1)), length()], &none), Some(1000));
    assert_eq!(counted_length(&[cost(CostSource::Number(1))], &none), None);
    assert_eq!(counted_length(&[length()], &request("/", &[("content-length", "5")]).headers), None);
    let settled = CostConfig { settle: Some(SettleSource::Llm { include_usage: false }), ..length() };
    assert_eq!(counted_length(&[settled], &none), None);
}

#[test]
fn numbers_in_bodies() {
    let rows: &[(&str, Option<u64>)] = &[
        (r#"{"a": {"b": [0, {"c": 5}]}}"#, Some(5)),
        (r#"{"x": "a", "a": {"b": [[], {"d": {}, "c": 4.2}, 1]}, "y": null}"#, Some(5)),
        (r#"{"a": {"b": [0, {"c": 0}]}}"#, Some(0)),
        (r#"{"a": {"b": [0, {"c": 1, "c": 9}]}}"#, Some(9)),
        (r#"{"a": {"b": [0, {"c": 1}]}, "a": 3}"#, None),
        (r#"{"\u0061": {"b": [0, {"c": 5}]}}"#, Some(5)),
        (r#"{"a": {"b": [0, {"c": -1}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": -0.5}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": 9007199254740991}]}}"#, Some(9_007_199_254_740_991)),
        (r#"{"a": {"b": [0, {"c": 9007199254740992}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": 1e30}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": "5"}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": null}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": [5]}]}}"#, None),
        (r#"{"a": {"b": [0, {"c": {"c": 5}}]}}"#, None),
        (r#"{"a": {"b": [0]}}"#, None),
        (r#"{"a": {"b": {"1": {"c": 5}}}}"#, Some(5)),
        (r#"{"a": 5}"#, None),
        (r#"[]"#, None),
        (r#"{"a": {"b": [0, {"c": 5}]}} x"#, None),
        (r#"{"a": {"b": [0, {"c": 5}]}"#, None),
        ("", None),
    ];
    for (body, expected) in rows {
        assert_eq!(pointer("/a/b/1/c").find(body.as_bytes()), *expected, "{body}");
        check(CostSource::Json(pointer("/a/b/1/c")), &[], Some(body.as_bytes()), expected.unwrap_or(7));
    }
    assert_eq!(pointer("").find(b" 5 "), Some(5));
    assert_eq!(pointer("/01").find(b"[1, 2]"), None);
    check(CostSource::Json(pointer("/a")), &[], None, 7);
}

#[test]
fn long_and_deep_bodies_cost_the_default() {
    let long = format!(r#"{{"a": 5{}}}"#, " ".repeat(MAX_BODY_BYTES));
    check(CostSource::Json(pointer("/a")), &[], Some(long.as_bytes()), 7);
    let deep = "[".repeat(MAX_BODY_BYTES);
    check(CostSource::Json(pointer("/a")), &[], Some(deep.as_bytes()), 7);
    let deep = format!(r#"{{"x": {}{}, "a": 5}}"#, "[".repeat(20_000), "]".repeat(20_000));
    assert!(pointer("/a").find(deep.as_bytes()).is_none_or(|found| found == 5));
}

#[test]
fn some_costs_need_the_body() {
    assert_eq!(body_bound(&[cost(CostSource::Number(1)), cost(CostSource::Length { bytes: 1 })]), 0);
    assert!(!needs_body(&[]));
    assert_eq!(body_bound(&[cost(CostSource::Number(1)), cost(CostSource::Json(pointer("/a")))]), MAX_BODY_BYTES);
    assert!(needs_body(&[cost(CostSource::GraphQl(BOUNDS))]));
    let llm = |include_usage| CostConfig {
        settle: Some(SettleSource::Llm { include_usage }),
        ..cost(CostSource::Json(pointer("/a")))
    };
    assert_eq!(body_bound(&[llm(true)]), crate::costs::include_usage::MAX_REWRITTEN_BYTES);
    assert_eq!(body_bound(&[llm(false)]), MAX_BODY_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_makes_it_stumble(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        json in r#"[\[\]{}":,a-c0-9.e-]{0,60}"#,
    ) {
        for body in [&*body, json.as_bytes()] {
            let _ = pointer("/a/0/b").find(body);
            let _ = reserve(&cost(CostSource::GraphQl(BOUNDS)), &request("/", &[]), Some(body));
        }
    }

    /// The place that is found while reading is the one in the tree.
    #[test]
    fn pointers_find_what_the_tree_has(number in 0_u64..1 << 53, before in 0_usize..4, key in "[a-z/~\"]{0,5}") {
        let mut list = vec![serde_json::json!({"x": [1, {"y": 2}]}); before];
        list.push(serde_json::json!({key.clone(): {"n": number}}));
        let body = serde_json::json!({"list": list}).to_string();
        let pointer = JsonPointer(vec!["list".into(), before.to_string(), key, "n".into()]);
        prop_assert_eq!(pointer.find(body.as_bytes()), Some(number));
    }
}
