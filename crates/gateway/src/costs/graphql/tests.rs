//! Costs of queries, and queries that are made to be dear.

use http::Request;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const BOUNDS: GraphQlBounds = GraphQlBounds { depth: 12, aliases: 10, batch: 3, list: 20, most: 1000 };
const UNBOUNDED: GraphQlBounds =
    GraphQlBounds { depth: u32::MAX, aliases: u32::MAX, batch: u32::MAX, list: 20, most: u64::MAX };

fn request(uri: &str, content_type: &str) -> Parts {
    Request::builder().uri(uri).header("content-type", content_type).body(()).unwrap().into_parts().0
}

fn cost_of(bounds: &GraphQlBounds, body: &Value) -> Result<Option<u64>, CostRefusal> {
    cost(bounds, &request("/graphql", "application/json"), Some(body.to_string().as_bytes()))
}

#[track_caller]
fn check(query: &str, variables: Value, expected: u64) {
    let body = json!({"query": query, "variables": variables});
    assert_eq!(cost_of(&UNBOUNDED, &body), Ok(Some(expected)), "{query}");
}

/// The query is refused, with these words.
#[track_caller]
fn refused(bounds: &GraphQlBounds, body: &Value, words: &str) {
    let refusal = cost_of(bounds, body).unwrap_err();
    assert!(refusal.reason.contains(words), "{refusal}");
}

#[test]
fn the_published_example_costs_862() {
    let query = "query {
        allPeople(first: 20) {
            people { name vehicleConnection(first: 10) { vehicles { id name cargoCapacity } } }
        }
    }";
    check(query, json!({}), 862);
}

#[test]
fn fields_and_lists() {
    let rows = [
        ("{ a }", 2),
        ("{ a b }", 3),
        ("query Q { a { b { c } } }", 4),
        ("mutation { a { b } }", 3),
        ("subscription S @x(y: 1) { a }", 2),
        ("{ a(first: 10) { b c } }", 1 + 1 + 10 * 2),
        ("{ a(last: 3, after: \"x\") { b } }", 1 + 1 + 3),
        ("{ a(limit: 0) { b } }", 2),
        ("{ a(first: 5, last: 50) { b } }", 1 + 1 + 50),
        // The length of a list that is not known.
        ("{ a(after: \"x\") { b } }", 1 + 1 + 20),
        ("{ a(first: null) { b } }", 1 + 1 + 20),
        ("{ a(first: -1) { b } }", 1 + 1 + 20),
        ("{ a(first: 1.5) { b } }", 1 + 1 + 20),
        ("{ a(first: \"7\") { b } }", 1 + 1 + 20),
        ("{ a(first: [7]) { b } }", 1 + 1 + 20),
        ("{ a { edges { node { b } } } }", 1 + 1 + 1 + 20 * 2),
        ("{ a { nodes { b } } }", 1 + 1 + 1 + 20),
        ("{ a(first: 3) { edges { node { b } } } }", 1 + 1 + 3 * 3),
        ("{ a(first: 3) { ... on X { edges { b } } ...F } } fragment F on X { nodes { b } }", 1 + 1 + 3 * 4),
        // Arguments of fields without selections do not matter, nor do others.
        ("{ a(first: 10) b(id: 10) { c } }", 4),
        ("{ a(where: {first: 10, list: [1, {b: $x}]}) { c } }", 3),
        ("{ a @include(if: $x) @first(first: 10) { c @skip(if: true) } }", 3),
        ("{ x: a y: a(first: 2) { z: b } }", 1 + 1 + 1 + 2),
        ("{ ... { a } ... on X { b } ... @include(if: true) { c } }", 4),
        ("{ ...F ...F } fragment F on X { a ...G } fragment G on X { b }", 1 + 2 * 2),
        ("# { comment\n\u{feff}{ a(x: \"\"\"} \\\"\"\" \"\"\", y: \"}\\\"\") , b }", 3),
        ("\"description\" query { a }", 2),
        ("{ query fragment on: mutation }", 4),
    ];
    for (query, expected) in rows {
        check(query, json!({}), expected);
    }
}

#[test]
fn variables_are_lengths() {
    let query = "query Q($n: Int! = 5, $o: [X!]! = [{a: 1}] @x) { a(first: $n) { b } }";
    check(query, json!({}), 7);
    check(query, json!({"n": 30}), 32);
    check(query, json!({"n": 0}), 2);
    check(query, json!({"n": null}), 22);
    check(query, json!({"n": "x"}), 22);
    check(query, json!(null), 7);
    check("query ($n: Int) { a(first: $n) { b } }", json!({}), 22);
    check("query ($n: Int) { a(first: $n) { b } }", json!({"n": u64::MAX}), u64::MAX);
}

#[test]
fn one_operation_is_executed() {
    let query = "query A { a } query B { a b c } fragment F on X { a }";
    let named = |name: Value| json!({"query": query, "operationName": name});
    assert_eq!(cost_of(&BOUNDS, &named(json!("A"))), Ok(Some(2)));
    assert_eq!(cost_of(&BOUNDS, &named(json!("B"))), Ok(Some(4)));
    refused(&BOUNDS, &named(json!(null)), "one operation");
    refused(&BOUNDS, &named(json!("C")), "one operation");
    refused(&BOUNDS, &json!({"query": "query A { a } query A { b }", "operationName": "A"}), "one operation");
    refused(&BOUNDS, &json!({"query": "fragment F on X { a }"}), "one operation");
}

#[test]
fn batches_are_the_sum_and_bounded() {
    let one = json!({"query": "{ a b }"});
    assert_eq!(cost_of(&BOUNDS, &json!([one, one, one])), Ok(Some(9)));
    assert_eq!(cost_of(&BOUNDS, &json!([])), Ok(None));
    refused(&BOUNDS, &json!([one, one, one, one]), "at most 3 queries");
    refused(&BOUNDS, &json!([[one]]), "is an object");
    refused(&BOUNDS, &json!([one, {"query": "{"}]), "can't be read");
}

#[test]
fn queries_come_in_several_forms() {
    let query = "/graphql?x=1&query=query+Q($n:Int)%7Ba(first:$n)%7Bb%7D%7D&variables=%7B%22n%22:3%7D&operationName=Q";
    assert_eq!(cost(&BOUNDS, &request(query, "x/y"), None), Ok(Some(5)));
    let body: &[u8] = br#"{"query": "{ a }"}"#;
    assert_eq!(cost(&BOUNDS, &request(query, "application/json"), Some(body)), Ok(Some(7)));
    assert_eq!(cost(&BOUNDS, &request("/", "application/graphql"), Some(b"{ a }")), Ok(Some(2)));
    let form = request("/", "application/x-www-form-urlencoded; charset=utf-8");
    assert_eq!(cost(&BOUNDS, &form, Some(b"query=%7Ba%7D")), Ok(Some(2)));
    // A query that the upstream knows by its digest.
    for body in [json!({"extensions": {}}), json!({"query": null}), json!({"query": ""})] {
        assert_eq!(cost_of(&BOUNDS, &body), Ok(None), "{body}");
    }
    assert_eq!(cost(&BOUNDS, &request("/", "application/json"), None), Ok(None));
    let mut compressed = request("/", "application/json");
    compressed.headers.insert("content-encoding", http::HeaderValue::from_static("gzip"));
    assert!(cost(&BOUNDS, &compressed, Some(b"x")).unwrap_err().reason.contains("compressed"));
}

#[test]
fn what_can_not_be_read_is_refused() {
    let queries = [
        "{",
        "}",
        "{}",
        "{ a",
        "{ a { } }",
        "a",
        "query",
        "{ a( }",
        "{ a(b) }",
        "{ a(b:) }",
        "{ ... }",
        "{ ...on }",
        "{ a: }",
        "{ a(b: \"x) }",
        "{ a(b: \"\n\") }",
        "{ a(b: \"\"\"x\"\") }",
        "type X { a: Int }",
        "{ a } x",
        "?",
        "{ a(b: 1x) }",
        "{ a } fragment F { a }",
        "query ($a) { a }",
        "query ($a: [Int) { a }",
        "{ .. a }",
        "ü",
    ];
    for query in queries {
        refused(&UNBOUNDED, &json!({"query": query}), "can't be read");
    }
    refused(&BOUNDS, &json!({"query": "{ ...F }"}), "not defined");
    refused(&BOUNDS, &json!({"query": "{ a } fragment F on X { a } fragment F on X { b }"}), "defined twice");
    refused(&BOUNDS, &json!({"query": 1}), "is a text");
    refused(&BOUNDS, &json!("x"), "is an object");
    let refusal = cost(&BOUNDS, &request("/", "application/json"), Some(b"{\"query\"")).unwrap_err();
    assert!(refusal.reason.contains("in JSON"), "{refusal}");
}

#[test]
fn bounds_are_held() {
    let nested = |depth: usize| json!({"query": format!("{}a{}", "{ a ".repeat(depth - 1) + "{", "}".repeat(depth))});
    assert_eq!(cost_of(&BOUNDS, &nested(12)), Ok(Some(13)));
    refused(&BOUNDS, &nested(13), "at most 12 fields deep");
    let aliased = |count: usize| json!({"query": format!("{{ {} }}", "x: a ".repeat(count))});
    assert_eq!(cost_of(&BOUNDS, &aliased(10)), Ok(Some(11)));
    refused(&BOUNDS, &aliased(11), "at most 10 aliases");
    let list = |length: u64| json!({"query": format!("{{ a(first: {length}) {{ b }} }}")});
    assert_eq!(cost_of(&BOUNDS, &list(998)), Ok(Some(1000)));
    refused(&BOUNDS, &list(999), "costs 1001, and at most 1000");
    // Fragments are as deep as where they are used.
    let deep = format!("{} ...F {} fragment F on X {{ a {{ a }} }}", "{ a ".repeat(11) + "{", "}".repeat(12));
    refused(&BOUNDS, &json!({"query": deep}), "at most 12 fields deep");
}

// === Queries that are made to be dear ===

#[test]
fn bombs_are_bounded() {
    // Each list is in the one before it.
    let lists = "{a(first:1000000)".repeat(50) + "{b}" + &"}".repeat(50);
    check(&lists, json!({}), u64::MAX);
    check("{a(first:99999999999999999999999999){b}}", json!({}), u64::MAX);
    // 2^60 fields by spreads that double.
    let mut doubling = "{...F0}".to_owned();
    for n in 0..60 {
        doubling += &format!("fragment F{n} on X{{...F{m} ...F{m}}}", m = n + 1);
    }
    doubling += "fragment F60 on X{a}";
    check(&doubling, json!({}), (1 << 60) + 1);
    refused(&BOUNDS, &json!({"query": doubling}), "at most 1000");
    for cycle in [
        "{...F} fragment F on X{...F}",
        "{...F} fragment F on X{a{...G}} fragment G on X{b(first: 2){...F}}",
        "{...F} fragment F on X{... on Y{...F}}",
    ] {
        refused(&UNBOUNDED, &json!({"query": cycle}), "contains itself");
    }
}

#[test]
fn long_and_deep_queries_are_bounded() {
    let length = 65_000;
    let mut chain = "{...F0}".to_owned();
    for n in 0..1_200 {
        chain += &format!("fragment F{n} on X{{a{{...F{}}}}}", n + 1);
    }
    let deep = [
        "{a".repeat(length / 2),
        "{...".repeat(length / 4),
        format!("{{a(b:{}", "[".repeat(length)),
        format!("{{a(b:{}", "{c:".repeat(length / 3)),
        format!("query($a:{}", "[".repeat(length)),
        chain,
    ];
    for query in deep {
        refused(&UNBOUNDED, &json!({"query": query}), "nested at most 128");
    }
    for query in ["{".repeat(length), "}".repeat(length), "\"".repeat(length), "(".repeat(length)] {
        let _ = cost_of(&UNBOUNDED, &json!({"query": query})).unwrap_err();
    }
    check(&format!("{{{}}}", "a ".repeat(30_000)), json!({}), 30_001);
    check(&format!("{{{}}}", "a:b ".repeat(15_000)), json!({}), 15_001);
    check(&format!("{{a{}}}", " ".repeat(60_000)), json!({}), 2);
    // Many spreads of many fragments.
    let names: Vec<String> = (0..1_000).map(|n| format!("F{n}")).collect();
    let spreads: String = names.iter().map(|name| format!("...{name} ")).collect();
    let fragments: String = names.iter().map(|name| format!("fragment {name} on X{{a}}")).collect();
    check(&format!("{{{}}}{fragments}", spreads.repeat(3)), json!({}), 3_001);
    refused(&UNBOUNDED, &json!({"query": " ".repeat(MAX_BODY_BYTES)}), "at most 65536 bytes");
}

const TOKENS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    "...",
    "$",
    "@",
    "#",
    "\n",
    " ",
    "\"",
    "\"\"\"",
    "1",
    "a",
    "F",
    "first",
    "query",
    "fragment F on X",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_query_makes_it_stumble(tokens in proptest::collection::vec(proptest::sample::select(TOKENS), 0..40)) {
        let tokens = tokens.concat();
        let _ = cost_of(&BOUNDS, &json!({"query": tokens}));
    }

    #[test]
    fn no_text_makes_it_stumble(query in "\\PC{0,60}") {
        let _ = cost_of(&BOUNDS, &json!({"query": query}));
    }
}

#[test]
fn what_an_upstream_may_read_differently_is_refused() {
    let json = "application/json";
    let dear = r#"{"query": "{ a }", "variables": {}}"#;
    for (uri, content_type, body, words) in [
        ("/", "multipart/form-data; boundary=x", "--x\r\n", "multipart/form-data"),
        ("/", "Multipart/Form-Data", dear, "multipart/form-data"),
        ("/?query={a}&query={b}", json, "", "one `query`"),
        ("/?query={a}&%71uery={b}", json, "", "one `query`"),
        ("/", "application/x-www-form-urlencoded", "query={a}&query={b}", "one `query`"),
        ("/?query={a}&operationName=A&operationName=B", json, "", "one `operationName`"),
        ("/", json, r#"{"query": "{ a }", "query": "{ b }"}"#, "not a GraphQL request"),
        ("/", json, r#"[{"query": "{ a }", "variables": {"n": 1, "n": 2}}]"#, "not a GraphQL request"),
        ("/", json, r#"{"query": "{ a }", "Query": "{ b }"}"#, "are written"),
    ] {
        let refusal = cost(&BOUNDS, &request(uri, content_type), Some(body.as_bytes())).unwrap_err();
        assert!(refusal.reason.contains(words), "{uri} {body}: {refusal}");
    }
    let mut twice = request("/", json);
    twice.headers.append("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    assert!(cost(&BOUNDS, &twice, Some(dear.as_bytes())).unwrap_err().reason.contains("one Content-Type"));
    assert_eq!(cost(&BOUNDS, &request("/?query={a}&query={a}", json), None), Ok(Some(2)));
}
