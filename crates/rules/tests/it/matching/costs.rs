//! The cost of a request under each rule.

use crate::matching::{check, met, rules};

const FILE: &str = r#"
domain: d
rules:
  - {name: request, key: [], limit: 900/m}
  - {name: fixed, key: [], limit: 900/m, cost: 3}
  - {name: attribute, key: [], limit: 900/m, cost: tokens}
  - {name: table, key: [], limit: 900/m, cost: {endpoint: {"GET /free": 0, "GET *": 1, "POST *": 5, default: 2}}}
  - {name: bare-table, key: [], limit: 900/m, cost: {endpoint: {"POST *": 5}}}
  - {name: in-flight, key: [], limit: 20 concurrent}
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 9}}
"#;

#[test]
fn each_form_of_a_cost() {
    check(
        FILE,
        &[
            ("", &["request() 900/60s", "fixed() 900/60s ×3", "table() 900/60s ×2", "in-flight() 20 concurrent"]),
            (
                "tokens=250",
                &[
                    "request() 900/60s",
                    "fixed() 900/60s ×3",
                    "attribute() 900/60s ×250",
                    "table() 900/60s ×2",
                    "in-flight() 20 concurrent",
                ],
            ),
            (
                "endpoint=POST /x",
                &[
                    "request() 900/60s",
                    "fixed() 900/60s ×3",
                    "table() 900/60s ×5",
                    "bare-table() 900/60s ×5",
                    "in-flight() 20 concurrent",
                ],
            ),
            // The first case in the file's order wins, and a case may have cost 0.
            (
                "endpoint=GET /free",
                &["request() 900/60s", "fixed() 900/60s ×3", "table() 900/60s ×0", "in-flight() 20 concurrent"],
            ),
            (
                "endpoint=GET /x",
                &["request() 900/60s", "fixed() 900/60s ×3", "table() 900/60s", "in-flight() 20 concurrent"],
            ),
        ],
    );
}

#[test]
fn a_request_that_costs_nothing_is_a_look_everywhere() {
    check(
        FILE,
        &[(
            "cost 0 | tokens=250, endpoint=POST /x | a=1",
            &[
                "request() 900/60s ×0",
                "fixed() 900/60s ×0",
                "attribute() 900/60s ×0",
                "table() 900/60s ×0",
                "bare-table() 900/60s ×0",
                "in-flight() 20 concurrent ×0",
                "a(1) 9/60s ×0",
            ],
        )],
    );
}

/// A rule of the list is charged the maximum of the hits, once; the tree charges each descriptor its own.
#[test]
fn hits_of_descriptors() {
    let file = "
domain: d
rules:
  - {name: request, key: [], limit: 900/m}
  - {name: fixed, key: [], limit: 900/m, cost: 3}
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 9}}
";
    check(
        file,
        &[
            ("cost 4 | a=1", &["request() 900/60s ×4", "fixed() 900/60s ×3", "a(1) 9/60s ×4"]),
            (
                "cost 4 | a=1, hits 2 | b=1",
                &["request() 900/60s ×4", "fixed() 900/60s ×3", "a(1) 9/60s ×2", "b(1) 9/60s ×4"],
            ),
            (
                "cost 4 | a=1, hits 7 | b=1, hits 2",
                &["request() 900/60s ×7", "fixed() 900/60s ×3", "a(1) 9/60s ×7", "b(1) 9/60s ×2"],
            ),
            // If every descriptor has hits, the request's own cost is not used.
            ("cost 4 | a=1, hits 2", &["request() 900/60s ×2", "fixed() 900/60s ×3", "a(1) 9/60s ×2"]),
            (
                "cost 4 | a=1, hits 0 | b=1, hits 0",
                &["request() 900/60s ×0", "fixed() 900/60s ×0", "a(1) 9/60s ×0", "b(1) 9/60s ×0"],
            ),
            ("a=1, hits 0 | b=1", &["request() 900/60s", "fixed() 900/60s ×3", "a(1) 9/60s ×0", "b(1) 9/60s"]),
        ],
    );
}

/// The rule sets the cost of a request; concurrency counts requests.
#[test]
fn concurrency_takes_one_whatever_a_request_costs() {
    let file = r#"
domain: d
rules:
  - {name: in-flight, key: [], limit: 20 concurrent}
"#;
    check(
        file,
        &[("cost 5 | a=1", &["in-flight() 20 concurrent"]), ("cost 0 | a=1", &["in-flight() 20 concurrent ×0"])],
    );
}

#[test]
fn a_cost_that_is_no_whole_number_counts_1() {
    let rules = rules(FILE);
    for (tokens, units) in [("many", ""), ("", ""), ("1.5", ""), ("-1", ""), (" 1", ""), ("0", " ×0"), ("7", " ×7")] {
        let met = met(&rules, &format!("tokens={tokens}")).unwrap();
        assert!(met.contains(&format!("attribute() 900/60s{units}")), "{tokens:?}: {met:?}");
    }
    // A number beyond all limits is no malformed one.
    let large = met(&rules, "tokens=18446744073709551616").unwrap();
    assert!(large.contains(&format!("attribute() 900/60s ×{}", u64::MAX)), "{large:?}");
}

#[test]
fn a_bad_cost_matters_only_where_the_rule_applies() {
    let file = "
domain: d
tiers: {free: {}, pro: {}}
default_tier: free
rules:
  - {name: other, key: [], match: {a: x}, limit: 9/m, cost: tokens}
  - {name: tier, key: [], limit: {pro: 9/m}, cost: tokens}
  - {name: off, key: [], limit: 9/m, cost: tokens, mode: off}
";
    check(file, &[("tokens=many, a=y", &[])]);
}
