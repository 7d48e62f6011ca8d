//! Limits whose concurrent requests each server counts by itself.

use tollgate_core::{ClaimId, Descriptor, Request, Shortcuts};
use tollgate_rules::{LoadOptions, RuleFile, Ruleset, load_sources};

use crate::matching::{compile, rules};

/// The problems of a rule.
fn problems(rule: &str) -> Vec<String> {
    let text = format!("domain: d\ntiers: {{a: {{}}, b: {{}}}}\nrules:\n  - {{name: r, {rule}}}\n");
    let source = RuleFile { name: "rules.yaml".to_owned(), text: text.clone() };
    match load_sources(&[source], &LoadOptions::default()) {
        Ok(loaded) => loaded.warnings.iter().map(|one| format!("{}; {}", one.message, one.remedy)).collect(),
        Err(problems) => {
            assert!(compile(&text).is_err());
            problems.iter().map(|one| format!("{}; {}", one.message, one.remedy)).collect()
        }
    }
}

fn shortcuts(rules: &Ruleset, entries: &[(&str, &str)]) -> Vec<Shortcuts> {
    let descriptors = [Descriptor::new(entries)];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    let resolved = rules.resolve(&request, ClaimId(1)).unwrap();
    resolved.claim.charges.iter().map(|charge| charge.shortcuts).collect()
}

#[test]
fn only_charges_of_such_rules_are_counted_by_servers() {
    let rules = rules(
        "
domain: d
rules:
  - {name: fleet, key: [], limit_by: priority, limit: {critical: 20 concurrent, default: 10 concurrent}, shed: true, count: summed}
  - {name: region, key: [region], match: {region: [eu, us]}, limit: 5 concurrent, count: summed}
  - {name: user, key: [user], limit: 5 concurrent, count: exact}
  - {name: tiny, key: [user], limit: 5 concurrent}
",
    );
    let (summed, stored) = (Shortcuts::Summed, Shortcuts::Refusals);
    assert_eq!(shortcuts(&rules, &[("priority", "critical")]), [summed]);
    assert_eq!(shortcuts(&rules, &[("user", "ada"), ("region", "eu")]), [summed, summed, stored, stored]);
    assert_eq!(shortcuts(&rules, &[("region", "asia")]), [summed]);
    let is_summed: Vec<bool> = rules.domains()[0].rules().iter().map(tollgate_rules::Rule::is_summed).collect();
    assert_eq!(is_summed, [true, true, false, false]);
}

#[test]
fn it_is_for_concurrent_requests_and_few_counters() {
    let few = "`count: summed` is for rules with few counters: `key: []`, or attributes whose values `match` lists; \
               write `key: []`, list the values under `match`, or write `count: exact`";
    let policy = "`count: summed` is only for policy comfort: no request waits for the store, and without it each server \
                  enforces its share of the limit; remove `policy` and `on_failure`, or write `count: exact`";
    let values: Vec<String> = (0..65).map(|number| format!("v{number}")).collect();
    let many = format!("key: [v], match: {{v: [{}]}}, limit: 5 concurrent, count: summed", values.join(", "));
    let too_many = "`count: summed` is for rules with at most 64 counters, and this one has 65; write `key: []`, list the \
                    values under `match`, or write `count: exact`";
    let none = "`count` has no effect with this limit; remove it; it is for limits such as `2000 concurrent`";
    for (rule, problem) in [
        ("key: [], limit: 5 concurrent, count: summed", None),
        ("key: [v?], match: {v: [a, b]}, limit: 5 concurrent, count: summed", None),
        ("key: [], limit: {a: 5 concurrent, b: 6 concurrent}, count: summed, on_failure: local", None),
        ("key: [user], limit: 5 concurrent, count: summed", Some(few)),
        ("key: [v], match: {v: [a, \"b*\"]}, limit: 5 concurrent, count: summed", Some(few)),
        ("key: [v], match: {v: {not: a}}, limit: 5 concurrent, count: summed", Some(few)),
        (&*many, Some(too_many)),
        ("key: [], limit: 5/minute, count: summed", Some(none)),
        ("key: [], limit: 5/minute, count: exact", Some(none)),
        ("key: [], limit: 5 concurrent, policy: security, count: summed", Some(policy)),
        ("key: [], limit: 5 concurrent, on_failure: allow, count: summed", Some(policy)),
        ("key: [], limit: 5 concurrent, policy: security, count: exact", None),
    ] {
        assert_eq!(problems(rule), problem.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{rule}");
    }
    let unknown = problems("key: [], limit: 5 concurrent, count: sum");
    assert_eq!(unknown, ["`count` can't be `sum`; write one of exact, summed"]);
}

#[test]
fn all_rules_together_have_a_bound() {
    let values: Vec<String> = (0..64).map(|number| format!("v{number}")).collect();
    let rule = |number: usize| {
        format!(
            "  - {{name: r{number}, key: [v], match: {{v: [{}]}}, limit: 5 concurrent, count: summed}}\n",
            values.join(", ")
        )
    };
    let file = |rules: usize| format!("domain: d\nrules:\n{}", (0..rules).map(rule).collect::<String>());
    assert!(Ruleset::from_text(&file(16), 1).is_ok());
    let problems = Ruleset::from_text(&file(17), 1).unwrap_err();
    let messages: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
    assert_eq!(messages, ["all rules with `count: summed` have more than 1024 counters"]);
}
