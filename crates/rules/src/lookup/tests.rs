//! The number of rules that are tried for a request: the work of matching.

use smallvec::SmallVec;
use tollgate_core::{ClaimId, Descriptor, Request};

use crate::attributes::{Attributes, Outline, attribute_places};
use crate::{LoadOptions, RuleFile, Ruleset, load_sources};

/// How many rules are tried for a request with these entries, and how many of them apply.
fn tried(count: usize, rule: &dyn Fn(usize) -> String, entries: &[(&str, &str)]) -> (usize, usize) {
    let lines: String =
        (0..count).map(|number| format!("  - {{name: r{number}, {}, limit: 1/s}}\n", rule(number))).collect();
    let source = RuleFile { name: "rules.yaml".to_owned(), text: format!("domain: d\nrules:\n{lines}") };
    let domains = load_sources(&[source], &LoadOptions::default()).unwrap().domains;
    let rules = Ruleset::compile(domains, 1).unwrap();
    let descriptors = [Descriptor::new(entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let domain = &rules.domains()[0];
    let mut candidates = SmallVec::new();
    let places = attribute_places(&request, &domain.attributes);
    let attributes = Attributes::new(&request, &Outline::of(&request).unwrap(), &places);
    domain.find_candidates(None, &attributes, &mut candidates);
    (candidates.len(), rules.resolve(&request, ClaimId(1)).unwrap().applied.len())
}

/// With ten thousand rules of exact values and prefixes, in any layout, few are tried.
#[test]
fn the_work_does_not_grow_with_the_rules() {
    type Layout = (&'static str, &'static dyn Fn(usize) -> String, &'static [(&'static str, &'static str)], usize);
    let layouts: &[Layout] = &[
        ("exact", &|n| format!("key: [k], match: {{a: v{n}}}"), &[("k", "1"), ("a", "v7")], 1),
        ("prefix", &|n| format!("key: [k], match: {{a: 'v{n:05}/*'}}"), &[("k", "1"), ("a", "v00007/x")], 1),
        ("nested prefixes", &|n| format!("key: [], match: {{a: 'v{n}*'}}"), &[("a", "v9999")], 4),
        ("list", &|n| format!("key: [], match: {{a: [v{n}, w{n}, 'x{n:05}*']}}"), &[("a", "w7")], 1),
        (
            "a shared value and one of its own",
            &|n| format!("key: [], match: {{method: GET, path: '/{n}/*'}}"),
            &[("method", "GET"), ("path", "/7/x")],
            1,
        ),
        (
            "tenants by endpoints",
            &|n| format!("key: [], match: {{tenant: t{}, endpoint: e{}}}", n / 100, n % 100),
            &[("tenant", "t7"), ("endpoint", "e9")],
            1,
        ),
        (
            "three dimensions",
            &|n| format!("key: [], match: {{a: x{}, b: 'y{}*', c: [z{}, w]}}", n / 484, n / 22 % 22, n % 22),
            &[("a", "x7"), ("b", "y9-"), ("c", "z3")],
            1,
        ),
        (
            "a shared value, distinguished by the key",
            &|n| format!("key: [k{n}], match: {{method: GET}}"),
            &[("method", "GET"), ("k7", "1")],
            1,
        ),
        ("distinguished by the key", &|n| format!("key: [all, k{n}]"), &[("all", "x"), ("k7", "1")], 1),
    ];
    const MAX_TRIED: usize = 16;
    for (layout, rule, entries, applies) in layouts {
        let (tried_on, applied) = tried(10_000, rule, entries);
        assert_eq!(applied, *applies, "{layout}");
        assert!(tried_on <= MAX_TRIED, "{layout}: tried on {tried_on} rules");
    }
}

/// Lists of many conditions multiply; a short file must not fill the memory.
#[test]
fn crowds_with_many_lists_stay_small() {
    let list = |clause: usize| format!("c{clause}: [a, b, c, d, e, f, g, h]");
    let lists = (0..16).map(list).collect::<Vec<_>>().join(", ");
    let entries: Vec<(String, &str)> = (0..16).map(|clause| (format!("c{clause}"), "h")).collect();
    let entries: Vec<(&str, &str)> = entries.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(tried(200, &|_| format!("key: [], match: {{{lists}}}"), &entries), (200, 200));
}

/// A rule with very many conditions does not create very many levels.
#[test]
fn crowds_with_many_conditions_stay_flat() {
    let clauses = (0..5_000).map(|clause| format!("c{clause}: a")).collect::<Vec<_>>().join(", ");
    assert_eq!(tried(20, &|_| format!("key: [], match: {{{clauses}}}"), &[("c0", "a")]).1, 0);
}

/// The conditions that distinguish a group may need to be tried one by one; that is bounded too.
#[test]
fn a_crowd_that_only_looks_tell_apart_is_refused() {
    let compile = |count: usize| {
        let rule = |number| {
            format!("  - {{name: r{number}, key: [], match: {{method: GET, path: '*/{number}'}}, limit: 1/s}}\n")
        };
        let text = format!("domain: d\nrules:\n{}", (0..count).map(rule).collect::<String>());
        let source = RuleFile { name: "f".to_owned(), text };
        Ruleset::compile(load_sources(&[source], &LoadOptions::default()).unwrap().domains, 1)
    };
    assert!(compile(Ruleset::MAX_SCANNED).is_ok());
    assert_eq!(compile(Ruleset::MAX_SCANNED + 1).unwrap_err().len(), 1);
}
