//! Matching is a lookup, and the rules that must be tried one by one are bounded.

use tollgate_rules::Ruleset;

use crate::matching::{compile, met};

fn file(rules: impl Iterator<Item = String>) -> String {
    let lines: String = rules.map(|rule| format!("  - {rule}\n")).collect();
    format!("domain: d\nrules:\n{lines}")
}

/// At the bound a domain loads; beyond it the problem has the number and a remedy.
#[test]
fn rules_that_only_a_look_can_match_are_bounded() {
    let forms = [
        |number: usize| format!("{{name: r{number}, key: [], match: {{a: '*-{number}'}}, limit: 1/s}}"),
        |number: usize| format!("{{name: r{number}, key: [], match: {{a: {{not: v{number}}}}}, limit: 1/s}}"),
        |number: usize| {
            format!(
                "{{name: r{number}, key: [], match: {{a: {{cidr: 10.{}.{}.0/24}}}}, limit: 1/s}}",
                number / 256,
                number % 256
            )
        },
        |number: usize| format!("{{name: r{number}, key: [], match: {{a: [x{number}, '*-{number}']}}, limit: 1/s}}"),
    ];
    for form in forms {
        assert!(compile(&file((0..Ruleset::MAX_SCANNED).map(form))).is_ok());
        let problems = compile(&file((0..=Ruleset::MAX_SCANNED).map(form))).unwrap_err();
        assert_eq!(
            problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "rules.yaml:1: error: 257 rules of this domain are distinguished only by `not`, `cidr` or a `*` that is not at the end; \
              give all but 256 of them an exact value or a prefix of their own to match as well"
            ]
        );
    }
    // With a distinct exact value they are found by that.
    let with_exact_value =
        |number| format!("{{name: r{number}, key: [], match: {{b: v{number}, a: {{not: x}}}}, limit: 1/s}}");
    assert!(compile(&file((0..1000).map(with_exact_value))).is_ok());
    // Rules that are off are not tried.
    let off = |number| format!("{{name: r{number}, key: [], match: {{a: {{not: x}}}}, mode: off, limit: 1/s}}");
    assert!(compile(&file((0..1000).map(off))).is_ok());
}

#[test]
fn wildcards_of_a_tree_are_bounded() {
    let tree = |count: usize| {
        let node = |number| {
            format!("  - {{key: a, value: '*-{number}', rate_limit: {{unit: second, requests_per_unit: 1}}}}\n")
        };
        format!("domain: d\ndescriptors:\n{}", (0..count).map(node).collect::<String>())
    };
    assert!(compile(&tree(Ruleset::MAX_SCANNED)).is_ok());
    assert!(compile(&tree(Ruleset::MAX_SCANNED + 1)).is_err());
}

/// A request matches the right rules among ten thousand.
#[test]
fn ten_thousand_rules() {
    let rule = |number: usize| match number % 4 {
        0 => format!("{{name: r{number}, key: [api_key], match: {{endpoint: 'GET /{}'}}, limit: 1/s}}", number / 4),
        1 => format!("{{name: r{number}, key: [api_key], match: {{endpoint: 'GET /{}*'}}, limit: 1/s}}", number / 4),
        2 => format!(
            "{{name: r{number}, key: [api_key], match: {{endpoint: 'GET /{}', api_key: k}}, limit: 1/s}}",
            number / 4
        ),
        _ => format!("{{name: r{number}, key: [], match: {{tenant: t{}}}, limit: 1/s}}", number / 4),
    };
    let rules = compile(&file((0..10_000).map(rule))).unwrap();
    let names = |request: &str| {
        let met = met(&rules, request).unwrap();
        met.iter().map(|line| line.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        names("endpoint=GET /2000, api_key=k, tenant=t7"),
        ["r9", "r31", "r81", "r801", "r8000", "r8001", "r8002"]
    );
    assert_eq!(names("endpoint=GET /7, api_key=l"), ["r28", "r29"]);
    assert_eq!(names("endpoint=GET /none, api_key=k"), Vec::<String>::new());
}
