//! Limits by the value of an attribute, on one counter.

use crate::matching::{check, compile, rules};

use tollgate_rules::{LoadOptions, RuleFile, Severity, load_sources};

const FLEET: &str = "
domain: d
rules:
  - {name: fleet, key: [], limit_by: priority, limit: {critical: 2000 concurrent, test: 1000 concurrent, default: 1600 concurrent}, shed: true}
";

#[test]
fn the_amount_follows_the_value_and_the_counter_does_not() {
    check(
        FLEET,
        &[
            ("priority=critical", &["fleet() 2000 concurrent row 4"]),
            ("priority=test", &["fleet() 1000 concurrent row 8"]),
            ("priority=get", &["fleet() 1600 concurrent"]),
            ("priority=post", &["fleet() 1600 concurrent"]),
            // A class that does not exist, and none.
            ("priority=vip", &["fleet() 1600 concurrent"]),
            ("other=1", &["fleet() 1600 concurrent"]),
        ],
    );
    let rules = rules(FLEET);
    let digests = ["critical", "test", "get"].map(|class| {
        let entries = [("priority", class)];
        let descriptors = [tollgate_core::Descriptor::new(&entries)];
        let request = tollgate_core::Request { descriptors: &descriptors, ..Default::default() };
        let resolved = rules.resolve(&request, tollgate_core::ClaimId(1)).unwrap();
        resolved.claim.charges[0].key.scope().short()
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    let rule = &rules.domains()[0].rules()[0];
    assert!(rule.sheds() && rule.limit_by() == Some("priority") && !rule.is_by_tier());
    let rows: Vec<_> = rule.rows(&rules.domains()[0]).collect();
    assert_eq!(rows, [("default", 0), ("critical", 4), ("test", 8)]);
    assert_eq!(rule.row_name(&rules.domains()[0], 6), "critical");
}

#[test]
fn any_attribute_may_name_the_amount_also_of_rates_and_tiers_stay_apart() {
    let file = "
domain: d
tiers: {free: {paid: false}, pro: {}}
tier_from: plan
rules:
  - {name: jobs, key: [user], limit_by: queue, limit: {batch: 10/minute, live: unlimited, default: 5/minute}, policy: cost}
";
    check(
        file,
        &[
            ("user=1, queue=batch", &["jobs(1) 10/60s row 2"]),
            ("user=1, queue=batch, plan=pro", &["jobs(1) 10/60s row 3"]),
            ("user=1, plan=pro", &["jobs(1) 5/60s @pro"]),
            ("user=1, queue=live", &["jobs unlimited row 4"]),
            ("queue=batch", &[]),
        ],
    );
}

#[test]
fn without_a_default_every_class_is_named_and_what_is_unknown_counts_as_post() {
    let file = "
domain: d
rules:
  - {name: fleet, key: [], limit_by: priority, limit: {test: 1 concurrent, get: 2 concurrent, post: 3 concurrent, critical: 4 concurrent}}
";
    check(
        file,
        &[("priority=critical", &["fleet() 4 concurrent row 16"]), ("priority=vip", &["fleet() 3 concurrent"])],
    );
}

/// The problems of a rule: `line: message; remedy`.
fn problems(rule: &str) -> Vec<String> {
    let text = format!("domain: d\nrules:\n  - {{name: r, key: [], {rule}}}\n");
    let source = RuleFile { name: "rules.yaml".to_owned(), text: text.clone() };
    let found = match load_sources(&[source], &LoadOptions::default()) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => {
            assert!(compile(&text).is_err());
            problems
        }
    };
    let kind = |severity| if severity == Severity::Warning { "warning: " } else { "" };
    found.iter().map(|one| format!("{}{}; {}", kind(one.severity), one.message, one.remedy)).collect()
}

#[test]
fn what_is_wrong_is_named_with_what_to_write() {
    let rows: [(&str, &[&str]); 12] = [
        ("limit_by: priority, limit: {critical: 2 concurrent, default: 1 concurrent}", &[]),
        (
            "limit_by: priority, limit: {critcal: 2 concurrent, default: 1 concurrent}",
            &["`limit`: there is no priority class `critcal`; did you mean `critical`?"],
        ),
        (
            "limit_by: priority, limit: {critical: 2 concurrent}",
            &[
                "`limit` has no `default`, so requests with other values, or without one, would not be limited; add one, for instance `limit: {critical: 2000 concurrent, default: 1600 concurrent}`",
            ],
        ),
        (
            "limit_by: queue, limit: {}",
            &[
                "`limit` has no `default`, so requests with other values, or without one, would not be limited; add one, for instance `limit: {batch: 100/minute, default: 500/minute}`",
            ],
        ),
        (
            "limit_by: priority, limit: 5 concurrent",
            &[
                "`limit` must be a map with `limit_by`, not `5 concurrent`; write a limit for each value, for instance `limit: {critical: 2000 concurrent, default: 1600 concurrent}`, or remove `limit_by`",
            ],
        ),
        (
            "limit_by: queue, limit: {batch: 5/minute, default: 5/hour}",
            &[
                "the limits of `limit_by` count on one counter, and these have different periods; write the same period for all, or rules with `match`",
            ],
        ),
        (
            "limit: {critical: 2 concurrent, default: 1 concurrent}",
            &[
                "`limit`: there is no tier `critical`; add `limit_by: priority` for limits by priority class",
                "`limit`: there is no tier `default`; write one of free, pro, enterprise, custom",
            ],
        ),
        (
            "limit_by: priority, limit: {critical: 1 concurrent, default: 2 concurrent}",
            &[
                "warning: `limit`: the class `critical` has less than the less important `post`; give the more important class more",
            ],
        ),
        (
            "limit: 5 concurrent, shed: true, headers: full",
            &["`headers` has no effect with `shed`: clients see no numbers of the rule; remove it"],
        ),
        (
            "limit: 5 concurrent, shed: true, policy: security",
            &[
                "a rule with `shed` can't refuse requests because the store does not answer; remove `policy`: the rule's is comfort",
            ],
        ),
        (
            "limit: 5 concurrent, shed: true, on_failure: deny",
            &[
                "a rule with `shed` can't refuse requests because the store does not answer; write `on_failure: allow`, or remove it",
            ],
        ),
        ("limit: 5/day in UTC, shed: true, policy: comfort, on_failure: allow", &[]),
    ];
    for (rule, expected) in rows {
        assert_eq!(problems(rule), expected, "{rule}");
    }
    let many: Vec<String> = (0..66).map(|n| format!("v{n}: 1/s")).collect();
    let found = problems(&format!("limit_by: queue, limit: {{{}}}", many.join(", ")));
    assert_eq!(found, ["`limit` has 66 values; write at most 64, and `default`"]);
}
