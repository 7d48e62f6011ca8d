//! The explanations of why each rule applies, or why not.

use tollgate_core::Request;
use tollgate_rules::RuleMatch;

use crate::matching::{TestRequest, rules};

const FILE: &str = r#"
domain: d
tiers: {free: {}, pro: {}}
default_tier: free
tier_from: plan
rules:
  - {name: keyed, key: [api_key], limit: 1/s}
  - {name: exact, key: [], match: {endpoint: "POST /login"}, limit: 1/s}
  - {name: several, key: [], match: {endpoint: [a, b, "c*", d, e, f, g]}, limit: 1/s}
  - {name: not, key: [], match: {endpoint: {not: ["GET *"]}}, limit: 1/s}
  - {name: within, key: [], match: {ip: {cidr: 10.0.0.0/8}}, limit: 1/s}
  - {name: outside, key: [], match: {ip: {not: {cidr: [192.168.0.0/16, "2001:db8::/32"]}}}, limit: 1/s}
  - {name: absent, key: [], match: {api_key: absent}, limit: 1/s}
  - {name: present, key: [], match: {session: present}, limit: 1/s}
  - {name: tiered, key: [], limit: {pro: 1/s}}
  - {name: costly, key: [], limit: 1/s, cost: tokens}
  - {name: tabled, key: [], limit: 1/s, cost: {endpoint: {"DELETE *": 5}}}
  - {name: off, key: [], limit: 1/s, mode: off}
  - {name: free, key: [], limit: unlimited}
descriptors:
  - key: a
    value: x
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: b, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: a, value: 'x*', rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: a, rate_limit: {name: base, unit: second, requests_per_unit: 1}}
  - {key: r, rate_limit: {name: other, unit: second, requests_per_unit: 1, replaces: [{name: base}]}}
  - {key: gone, enabled: false, rate_limit: {unit: second, requests_per_unit: 1}}
"#;

const APPLIES: &str = "applies";
const UNLIMITED: &str = "unlimited";

/// The expected result for some of the rules.
fn check(request: &str, expected: &[(&str, &str)]) {
    let rules = rules(FILE);
    let all: Vec<&str> = rules.domains()[0].rules().iter().map(|rule| rule.name()).collect();
    let explained = TestRequest::new(request).with(|request| rules.explain(request)).unwrap();
    assert_eq!(explained.len(), all.len(), "every rule has a fate");
    for (name, expected) in expected {
        let at = all.iter().position(|rule| rule == name).unwrap_or_else(|| panic!("there is no rule {name}"));
        let actual = match &explained[at] {
            RuleMatch::Applies => APPLIES,
            RuleMatch::Unlimited => UNLIMITED,
            RuleMatch::Misses(why) => why.as_str(),
        };
        assert_eq!(actual, *expected, "{name}: {request}");
    }
}

#[test]
fn rules_of_the_list() {
    check(
        "endpoint=GET /x, api_key=k",
        &[
            ("keyed", APPLIES),
            ("exact", "`endpoint` is \"GET /x\", and it must be \"POST /login\""),
            (
                "several",
                "`endpoint` is \"GET /x\", and it must be \"a\" or \"b\" or \"c*\" or \"d\" or \"e\" or 2 others",
            ),
            ("not", "`endpoint` is \"GET /x\", and it must not be \"GET *\""),
            ("within", "the request has no `ip`, and it must be in 10.0.0.0/8"),
            ("outside", APPLIES),
            ("absent", "`api_key` is \"k\", and it must be absent"),
            ("present", "the request has no `session`, and it must be there"),
            ("tiered", "it has no limit for tier free"),
            ("costly", "its cost is in `tokens`, which the request does not have"),
            ("tabled", "`endpoint` is \"GET /x\", for which its cost has no case"),
            ("off", "it is switched off"),
            ("free", UNLIMITED),
        ],
    );
    check(
        "ip=192.168.1.1, plan=pro, tokens=3",
        &[
            ("keyed", "its key needs `api_key`, which the request does not have"),
            ("exact", "the request has no `endpoint`, and it must be \"POST /login\""),
            ("not", APPLIES),
            ("within", "`ip` is \"192.168.1.1\", and it must be in 10.0.0.0/8"),
            ("outside", "`ip` is \"192.168.1.1\", and it must not be in 192.168.0.0/16 or 2001:db8::/32"),
            ("absent", APPLIES),
            ("tiered", APPLIES),
            ("costly", APPLIES),
            ("tabled", "its cost is in `endpoint`, which the request does not have"),
        ],
    );
    check(
        "session=s, ip=10.0.0.1, endpoint=DELETE /x",
        &[("present", APPLIES), ("within", APPLIES), ("tabled", APPLIES)],
    );
}

#[test]
fn limits_of_the_tree() {
    check(
        "a=x",
        &[
            ("a=x", APPLIES),
            ("a=x/b", "descriptor 1 ends after entry 1, and `b` must follow"),
            ("a=x*", "a more specific value or an earlier wildcard takes descriptor 1"),
            ("base", "a more specific value or an earlier wildcard takes descriptor 1"),
            ("other", "entry 1 of descriptor 1 is a=x, and it must be r"),
            ("gone", "it is switched off"),
        ],
    );
    check(
        "q=1 | a=x, b=y",
        &[
            ("a=x", "descriptor 2 goes on with b=y, deeper than this limit"),
            ("a=x/b", APPLIES),
            ("a=x*", "descriptor 2 goes on with b=y, deeper than this limit"),
        ],
    );
    check(
        "a=y | r=1",
        &[
            ("other", APPLIES),
            ("base", "other takes its place"),
            ("a=x", "entry 1 of descriptor 1 is a=y, and it must be a=x"),
        ],
    );
    check("", &[("base", "the request has no descriptors")]);
}

/// A deeper descriptor matches the limits of its ancestors, so its depth is not a reason.
#[test]
fn limits_of_a_tree_with_match_parents() {
    let rules = rules(&FILE.replace("domain: d\n", "domain: d\nmatch_parents: true\n"));
    let explained = TestRequest::new("a=x, b=y").with(|request| rules.explain(request)).unwrap();
    let fate = |name: &str| &explained[rules.domains()[0].rules().iter().position(|rule| rule.name() == name).unwrap()];
    assert_eq!(*fate("a=x"), RuleMatch::Applies);
    assert_eq!(*fate("a=x/b"), RuleMatch::Applies);
    let why = "a more specific value or an earlier wildcard takes descriptor 1";
    assert_eq!(*fate("a=x*"), RuleMatch::Misses(why.to_owned()));
}

#[test]
fn what_can_not_be_decided_can_not_be_explained() {
    let rules = rules(FILE);
    let explain = |request: &Request<'_>| rules.explain(&Request { domain: Some("none"), ..*request });
    let error = TestRequest::new("tokens=many").with(explain).unwrap_err();
    assert_eq!(error.to_string(), "there are no rules for this domain");
}
