//! The conditions of `match`.

use crate::matching::{check, rules};

/// One rule for each form of a condition on `a`.
const FORMS: &str = r#"
domain: d
rules:
  - {name: exact, key: [], match: {a: x1}, limit: 1/s}
  - {name: prefix, key: [], match: {a: "x*"}, limit: 1/s}
  - {name: suffix, key: [], match: {a: "*1"}, limit: 1/s}
  - {name: middle, key: [], match: {a: "x*y*z"}, limit: 1/s}
  - {name: all, key: [], match: {a: "*"}, limit: 1/s}
  - {name: list, key: [], match: {a: [x1, "y*", "*zz"]}, limit: 1/s}
  - {name: not, key: [], match: {a: {not: x1}}, limit: 1/s}
  - {name: not-list, key: [], match: {a: {not: [x1, "y*"]}}, limit: 1/s}
  - {name: within, key: [], match: {a: {cidr: 10.0.0.0/8}}, limit: 1/s}
  - {name: within-list, key: [], match: {a: {cidr: [10.0.0.0/8, "2001:db8::/32"]}}, limit: 1/s}
  - {name: outside, key: [], match: {a: {not: {cidr: 10.0.0.0/8}}}, limit: 1/s}
  - {name: absent, key: [], match: {a: absent}, limit: 1/s}
  - {name: present, key: [], match: {a: present}, limit: 1/s}
  - {name: a-word, key: [], match: {a: "absent"}, limit: 1/s}
  - {name: number, key: [], match: {a: 5}, limit: 1/s}
  - {name: empty, key: [], match: {a: ""}, limit: 1/s}
"#;

#[test]
fn each_form_of_a_condition() {
    let rows: &[(&str, &str)] = &[
        ("a=x1", "exact prefix suffix all list outside present"),
        ("a=x", "prefix all not not-list outside present"),
        ("a=X1", "suffix all not not-list outside present"),
        ("a=xyz", "prefix middle all not not-list outside present"),
        ("a=x0y0z", "prefix middle all not not-list outside present"),
        ("a=xzy", "prefix all not not-list outside present"),
        ("a=y", "all list not outside present"),
        ("a=azz", "all list not not-list outside present"),
        ("a=10.1.2.3", "all not not-list within within-list present"),
        ("a=::ffff:10.1.2.3", "all not not-list within within-list present"),
        ("a=11.1.2.3", "all not not-list outside present"),
        ("a=2001:db8::1", "suffix all not not-list within-list outside present"),
        ("a=2001:db9::", "all not not-list outside present"),
        ("a=10.1.2", "all not not-list outside present"),
        ("a=absent", "all not not-list outside present a-word"),
        ("a=5", "all not not-list outside present number"),
        ("a=", "all not not-list outside present empty"),
        ("b=x1", "not not-list outside absent"),
        ("", "not not-list outside absent"),
    ];
    let rules = rules(FORMS);
    for (request, expected) in rows {
        let met = crate::matching::met(&rules, request).unwrap();
        let names: Vec<&str> = met.iter().map(|line| line.split('(').next().unwrap()).collect();
        assert_eq!(names.join(" "), *expected, "{request}");
    }
}

#[test]
fn all_conditions_of_a_rule_must_hold() {
    let file = r#"
domain: d
rules:
  - {name: both, key: [c], match: {a: "x*", b: absent}, limit: 1/s}
  - {name: values, key: [c], match: {a: [x1, x2], b: [y1, y2]}, limit: 1/s}
"#;
    check(
        file,
        &[
            ("a=x1, c=k", &["both(k) 1/1s"]),
            ("a=x1, b=y2, c=k", &["values(k) 1/1s"]),
            ("a=x1, b=y3, c=k", &[]),
            ("a=y, c=k", &[]),
            ("a=x1", &[]),
        ],
    );
}

#[test]
fn a_rule_whose_list_matches_twice_is_charged_once() {
    let file = r#"
domain: d
rules:
  - {name: r, key: [], match: {a: [xyz, "x*", "xy*", "*z"]}, limit: 1/s}
  - {name: s, key: [], match: {a: [xyz, "x*", "xy*"]}, limit: 1/s}
"#;
    check(file, &[("a=xyz", &["r() 1/1s", "s() 1/1s"]), ("a=xx", &["r() 1/1s", "s() 1/1s"])]);
}
