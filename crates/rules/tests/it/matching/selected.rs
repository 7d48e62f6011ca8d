//! Rules by descriptor, rules in short form, and differences between rules.

use tollgate_rules::{Ruleset, ValueChange, difference, short_form};

use crate::matching::{compile, met, rules};

fn default_rule(text: &str) -> Option<String> {
    let rules = rules(text);
    rules.domains()[0].default_rule().map(|rule| rule.name().to_owned())
}

#[test]
fn the_default_rule() {
    let listed = |rules: &str| format!("domain: d\nentity: user\nrules:\n{rules}");
    let rule = |name: &str, key: &str, more: &str| format!("  - {{name: {name}, key: {key}, limit: 1/s{more}}}\n");
    let other = rule("all", "[]", "") + &rule("pair", "[user, path]", "") + &rule("maybe", "['user?']", "");
    let narrow = rule("narrow", "[user]", ", match: {path: /x}");
    let plain = rule("plain", "[user]", "");
    assert_eq!(default_rule(&listed(&(other.clone() + &narrow + &plain))).as_deref(), Some("plain"));
    assert_eq!(default_rule(&listed(&(other.clone() + &narrow))).as_deref(), Some("narrow"));
    assert_eq!(default_rule(&listed(&other)), None);
    // A switch does not redirect quotas to another rule.
    let off = rule("off", "[user]", ", mode: off");
    assert_eq!(default_rule(&listed(&(off + &plain))).as_deref(), Some("off"));
    assert_eq!(default_rule(&format!("default_rule: pair\n{}", listed(&(other + &plain)))).as_deref(), Some("pair"));
    // Without an entity there is no default rule.
    assert_eq!(default_rule("domain: d\nrules: [{name: r, key: [user], limit: 1/s}]\n"), None);
    let tree =
        "domain: d\nentity: user\ndescriptors:\n  - {key: user, rate_limit: {unit: second, requests_per_unit: 1}}\n";
    assert_eq!(default_rule(tree), None);
    assert_eq!(default_rule(&format!("default_rule: user\n{tree}")).as_deref(), Some("user"));
}

const DESCRIBED: &str = r#"
domain: d
rules:
  - {name: writes, key: [user], limit: 1/s, match: {endpoint: "POST /api/v1/orders*"}}
  - {name: exact, key: [user], limit: 1/s, match: {endpoint: "POST /api/v1/orders", plan: free}}
  - {name: same, key: [], limit: 1/s, match: {endpoint: ["POST /api/v1/orders"]}}
  - {name: several, key: [], limit: 1/s, match: {endpoint: ["POST /api/v1/orders", GET]}}
  - {name: refused, key: [], limit: 1/s, match: {endpoint: {not: GET}, user: present}}
  - {name: colon, key: [], limit: 1/s, match: {"a:b": "c:d"}}
descriptors:
  - key: tenant
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - key: endpoint
        value: "GET *"
        rate_limit: {name: reads, unit: second, requests_per_unit: 1}
        descriptors:
          - {key: plan, value: free, rate_limit: {name: free-reads, unit: second, requests_per_unit: 1}}
"#;

#[test]
fn rules_by_a_descriptor() {
    let rules = rules(DESCRIBED);
    let domain = &rules.domains()[0];
    let rows: [(&str, &[&str]); 11] = [
        ("endpoint:POST /api/v1/orders", &["exact", "same"]),
        ("endpoint:POST /api/v1/orders*", &["writes"]),
        ("endpoint:POST /api/v1/orders/7", &[]),
        ("plan:free", &["exact", "free-reads"]),
        ("endpoint:GET *", &["reads", "free-reads"]),
        ("a:b:c:d", &["colon"]),
        ("tenant:", &[]),
        ("nothing:free", &[]),
        ("endpoint", &[]),
        ("", &[]),
        ("user:present", &[]),
    ];
    for (descriptor, expected) in rows {
        let selected: Vec<_> = domain.select_rules(descriptor).iter().map(|rule| rule.name()).collect();
        assert_eq!(selected, expected, "{descriptor}");
    }
    let descriptors = domain.descriptors();
    assert_eq!(
        descriptors,
        ["endpoint:POST /api/v1/orders*", "endpoint:POST /api/v1/orders", "plan:free", "a:b:c:d", "endpoint:GET *"]
    );
    assert!(descriptors.iter().all(|descriptor| !domain.select_rules(descriptor).is_empty()));
}

#[test]
fn rules_in_short() {
    let rows = [
        (
            r#"{"key_pattern": "user:{user_id}", "algorithm": "token_bucket", "rate": 100, "burst": 150, "window": "1m"}"#,
            r#"{"key": ["user_id"], "algorithm": "token_bucket", "limit": "100/1m", "burst": 150}"#,
        ),
        (
            r#"{"key_pattern": "user:{user_id}", "algorithm": "token_bucket", "rate": 100, "burst": 150, "unit": "minute"}"#,
            r#"{"key": ["user_id"], "algorithm": "token_bucket", "limit": "100/minute", "burst": 150}"#,
        ),
        (
            r#"{"unit": "DAY", "rate": 0, "key_pattern": "t:{tenant}/u:{user?}{path}"}"#,
            r#"{"key": ["tenant", "user?", "path"], "limit": "0/day"}"#,
        ),
        (r#"{"key_pattern": "everyone", "rate": 5, "window": "2 hours"}"#, r#"{"key": [], "limit": "5/2 hours"}"#),
        (r#"{"key_pattern": "{\"}", "rate": 5, "window": "1s"}"#, r#"{"key": ["\""], "limit": "5/1s"}"#),
    ];
    for (short, expected) in rows {
        assert_eq!(short_form(short).as_deref(), Ok(expected), "{short}");
        let file = format!("domain: d\nrules:\n  - {}", expected.replacen('{', "{\"name\": \"r\", ", 1));
        compile(&file).unwrap_or_else(|problems| panic!("{problems:#?}"));
    }
    let file = format!("domain: d\nrules:\n  - {}", rows[0].1.replacen('{', "{\"name\": \"r\", ", 1));
    assert_eq!(met(&rules(&file), "user_id=u_42").unwrap(), ["r(u_42) 100/60s burst 150"]);
}

#[test]
fn every_fault_of_a_rule_in_short() {
    let rows: [(&str, &[&str]); 14] = [
        ("", &["the rule has no text; write for instance"]),
        ("[]", &["the rule must be an object, not a list; write for instance"]),
        ("{\"rate\": ", &["line 1: this is not YAML"]),
        (
            "{}",
            &["`key_pattern` is missing; write", "`rate` is missing; write", "`window` is missing; write for instance"],
        ),
        (
            r#"{"key_pattern": 5, "algorithm": "tokenbucket", "rate": "100", "burst": 1.5, "window": 60, "brust": 1, "zzzzzzz": null}"#,
            &[
                "`brust` is not a member of a rule; did you mean `burst`?",
                "`zzzzzzz` is not a member of a rule; the members are key_pattern, algorithm, rate, burst, window, unit",
                "`key_pattern` must be a text, not `5`; write it in quotes",
                "`algorithm` can't be `tokenbucket`; did you mean `token_bucket`?",
                "`rate` must be a whole number, not the text `100`; write digits alone, for instance 100",
                "`burst` must be a whole number, not `1.5`; write digits alone, for instance 100",
                "`window` must be a text, not `60`; write it in quotes",
            ],
        ),
        (
            r#"{"key_pattern": "u:{a", "rate": -1, "window": "60", "unit": "minute"}"#,
            &[
                "`key_pattern`: `u:{a` has a brace too many; write attributes between braces",
                "`rate` must be a whole number, not `-1`",
                "`unit` conflicts with `window`; keep one of the two",
            ],
        ),
        (r#"{"key_pattern": "{a}}", "rate": 1, "window": "1s"}"#, &["`key_pattern`: `{a}}` has a brace too many"]),
        (r#"{"key_pattern": "{a{b}}", "rate": 1, "window": "1s"}"#, &["`key_pattern`: `{a{b}}` has a brace too many"]),
        (
            r#"{"key_pattern": "{}", "rate": 1, "window": "1s"}"#,
            &["`key_pattern`: `{}` has braces without a name; name"],
        ),
        (
            r#"{"key_pattern": "{a}{a}", "rate": 1, "window": "1s"}"#,
            &["`key_pattern`: `{a}{a}` has an attribute twice"],
        ),
        (
            r#"{"key_pattern": "", "rate": 1, "window": "60"}"#,
            &["`key_pattern` is empty", "`window`: `60` has no unit; write 60s"],
        ),
        (
            r#"{"key_pattern": "a", "rate": 1, "unit": "fortnight"}"#,
            &["`unit` can't be `fortnight`; write one of second, minute"],
        ),
        (
            r#"{"key_pattern": "a", "rate": 1, "rate": 2, "unit": "day"}"#,
            &["line 1: `rate` is here twice, first in line 1"],
        ),
        (
            r#"{"key_pattern": "a", "rate": 1, "window": "1m/1m"}"#,
            &["`window`: `1m/1m` is not a length of time; write"],
        ),
    ];
    for (short, expected) in rows {
        let faults = short_form(short).unwrap_err();
        assert_eq!(faults.len(), expected.len(), "{short}: {faults:#?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{short}: {fault:?}");
        }
    }
}

fn differences(before: &str, after: &str) -> Vec<String> {
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let line =
        |ValueChange { path, before, after }: &ValueChange| format!("{path}: {} → {}", shown(before), shown(after));
    difference(before, after).iter().map(line).collect()
}

#[test]
fn what_differs_between_two_rules() {
    let before = r#"{"key": ["user"], "limit": {"free": "1/s", "pro": "2/s"}, "burst": 5, "match": {"path": "/a"}, "policy": null}"#;
    assert_eq!(differences(before, before), [""; 0]);
    // The formatting makes no difference.
    let yaml = "policy: ~\nburst: 5\nmatch: {path: /a}\nkey: [user]\nlimit:\n  pro: 2/s\n  free: 1/s\n";
    assert_eq!(differences(before, yaml), [""; 0]);
    assert_eq!(
        differences(
            before,
            r#"{"key": ["user", "path"], "limit": {"free": "3/s", "pro": "2/s"}, "match": {"path": ["/a"]}, "cost": {"endpoint": {"GET *": 1}}, "policy": "null"}"#
        ),
        [
            "key[1]: - → path",
            "limit.free: 1/s → 3/s",
            "burst: 5 → -",
            r#"match.path: /a → ["/a"]"#,
            "policy: null → null",
            r#"cost: - → {"endpoint":{"GET *":1}}"#,
        ]
    );
    assert_eq!(
        differences(
            r#"{"cost": {"endpoint": {"GET *": 1}}}"#,
            r#"{"cost": {"endpoint": {"GET *": 2, "default": null}}}"#
        ),
        [r#"cost.endpoint."GET *": 1 → 2"#, "cost.endpoint.default: - → null"]
    );
    assert_eq!(differences("", r#"{"key": [], "limit": "1/s"}"#), ["key: - → []", "limit: - → 1/s"]);
    assert_eq!(differences("{key: [a]}", ""), [r#"key: ["a"] → -"#]);
    assert_eq!(differences("[1]", "{}"), [": [1] → {}"]);
    assert_eq!(differences("{", "{}"), [": { → {}"]);
    assert_eq!(differences("{", "{"), [""; 0]);
}

/// A rule in short form equals the same rule in full.
#[test]
fn the_short_form_is_the_rule_that_it_says() {
    let short = short_form(r#"{"key_pattern": "{a}", "rate": 3, "window": "1m"}"#).unwrap();
    assert_eq!(differences(&short, "{key: [a], limit: 3/1m}"), [""; 0]);
    let file = "domain: d\nrules:\n  - {name: r, key: [a], limit: 3/1m}\n";
    let (rules, _) = Ruleset::from_text(file, 1).unwrap();
    assert_eq!(met(&rules, "a=1").unwrap(), ["r(1) 3/60s"]);
}
