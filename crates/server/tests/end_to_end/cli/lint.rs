//! `tollgate lint`.

use std::fs;

use serde_json::Value;

use crate::cli::{directory, rule_file, tollgate};

const GOOD: &str = "domain: good\nrules:\n  - {name: one, key: [], limit: 100/second}\n";
const WARNED: &str = "domain: warned\nrules:\n  - {name: one, key: [a], limit: 100/second}\n  - {name: two, key: [b], limit: 100/second}\n";
const BAD: &str = "domain: bad\nrules:\n  - name: one\n    key: [a]\n    limit: 1/fortnight\n    algoritm: gcra\n";

#[test]
fn the_examples_are_clean() {
    for path in ["examples/rules", "examples/rules/api.yaml"] {
        let output = tollgate(&["lint", path], b"");
        // Except for the warning about concurrency limits.
        let (warning, summary) = output.out.split_once('\n').unwrap();
        assert!(warning.contains("`api_platform` has concurrency limits (`in-flight`); "), "{warning}");
        assert_eq!((output.code, summary, &*output.err), (0, "1 domain, 9 rules: 0 errors, 1 warning\n", ""));
    }
}

#[test]
fn each_domain_with_a_concurrency_limit_has_a_warning() {
    let file = rule_file(
        "lint-held",
        "domain: one
entity: a
rules:
  - {name: rate, key: [a], limit: 100/second}
  - {name: off, key: [a], limit: 9 concurrent, mode: off}
  - {name: first, key: [a], limit: 2 concurrent}
  - {name: by-tier, key: [a], limit: {free: 100/second, pro: 2 concurrent, enterprise: unlimited, custom: unlimited}}
---
domain: two
rules: [{name: only, key: [a], limit: 2 concurrent}]
---
domain: three
rules: [{name: rate, key: [a], limit: 200/second}]
",
    );
    let output = tollgate(&["lint", &file], b"");
    let lines: Vec<&str> = output.out.lines().collect();
    let [.., one, two, summary] = &lines[..] else { panic!("{}", output.out) };
    assert!(one.starts_with(&format!("{file}:6: warning: `one` has concurrency limits (`first` and 1 other rule);")));
    assert!(two.starts_with(&format!("{file}:10: warning: `two` has concurrency limits (`only`);")), "{two}");
    for line in [one, two] {
        assert!(line.contains("`tollgate.claim`") && line.contains("`tollgate.ask: return`"), "{line}");
    }
    assert!(summary.ends_with("0 errors, 2 warnings") && output.code == 0, "{}", output.out);
}

#[test]
fn each_domain_whose_counters_may_be_in_another_region_has_a_warning() {
    let file = rule_file(
        "lint-home",
        "domain: one
entity: a
rules:
  - {name: here, key: [a], limit: 100/second}
  - {name: off, key: [a], limit: 9/day, region: home, mode: off}
  - {name: first, key: [a], limit: 2/day, region: {home: us-east}}
  - {name: second, key: [a], limit: 3/day, region: home}
---
domain: two
rules: [{name: only, key: [a], limit: 2/day, region: home}]
---
domain: three
entity: a
rules: [{name: shared, key: [a], limit: 200/day, region: split}, {name: sent, key: [a], limit: 200/day, region: global}]
",
    );
    let output = tollgate(&["lint", &file], b"");
    let warnings: Vec<&str> = output.out.lines().filter(|line| line.contains("`region: home`")).collect();
    let [one, two] = &warnings[..] else { panic!("{}", output.out) };
    let begins = |line: usize, domain: &str, rules: &str| {
        format!(
            "{file}:{line}: warning: `{domain}` has limits with `region: home` ({rules}): a check may wait for another region"
        )
    };
    assert!(one.starts_with(&begins(6, "one", "`first` and 1 other rule")), "{one}");
    assert!(two.starts_with(&begins(10, "two", "`only`")), "{two}");
    for line in warnings {
        assert!(line.contains("Envoy gives up after 20 ms") && line.contains("`timeout: 0.1s`"), "{line}");
    }
    assert!(output.out.contains(": 0 errors, 2 warnings") && output.code == 0, "{}", output.out);
}

#[test]
fn problems_are_lines_and_determine_the_exit_code() {
    let good = rule_file("lint-good", GOOD);
    let warned = rule_file("lint-warned", WARNED);
    let bad = rule_file("lint-bad", BAD);
    // 257 rules that must be scanned load, and do not compile.
    let scanned: String = (0..257)
        .map(|n| format!("  - {{name: r{n}, key: [], match: {{a: {{not: x{n}}}}}, limit: 100/second}}\n"))
        .collect();
    let scanned = rule_file("lint-scanned", &format!("domain: scanned\nrules:\n{scanned}"));
    let empty = directory("lint-empty");
    let empty = empty.to_str().unwrap();
    let rows: [(&[&str], i32, usize, &str); 8] = [
        (&[&good], 0, 0, "1 domain, 1 rule: 0 errors, 0 warnings"),
        (&[&good, &warned], 0, 1, "2 domains, 3 rules: 0 errors, 1 warning"),
        (&[&bad], 1, 2, "2 errors, 0 warnings"),
        (&[&good, &bad, &warned], 1, 3, "2 errors, 1 warning"),
        (&[&good, &good], 1, 1, "1 error, 0 warnings"),
        (&[&scanned], 1, 1, "1 error, 0 warnings"),
        (&[empty], 1, 1, "1 error, 0 warnings"),
        (&["no-such-file.yaml"], 1, 1, "1 error, 0 warnings"),
    ];
    for (paths, code, problems, summary) in rows {
        let output = tollgate(&[&["lint"], paths].concat(), b"");
        assert_eq!(output.code, code, "{paths:?}: {}", output.out);
        assert_eq!(output.out.lines().count(), problems + 1, "{paths:?}: {}", output.out);
        assert_eq!(output.out.lines().last(), Some(summary), "{paths:?}");
        assert_eq!(output.err, "", "{paths:?}");
    }
    let output = tollgate(&["lint", &bad], b"");
    assert!(output.out.starts_with(&format!("{bad}:5: error: ")), "{}", output.out);
    assert!(output.out.contains(":6: error: ") && output.out.contains("`algorithm`"), "{}", output.out);
}

#[test]
fn json_has_the_same_problems() {
    let bad = rule_file("lint-json-bad", BAD);
    let warned = rule_file("lint-json-warned", WARNED);
    let output = tollgate(&["lint", "--json", &bad], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &report["errors"], &report["warnings"]), (1, &Value::from(2), &Value::from(0)));
    assert_eq!((&report["domains"], &report["rules"]), (&Value::Null, &Value::Null));
    let first = &report["problems"][0];
    assert_eq!((&first["severity"], &first["file"], &first["line"]), (&"error".into(), &bad.into(), &5.into()));
    assert!(first["message"].as_str().unwrap().contains("fortnight"));
    assert_ne!(first["remedy"], "");

    let output = tollgate(&["lint", &warned, "--json"], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &report["errors"], &report["warnings"]), (0, &0.into(), &1.into()));
    assert_eq!((&report["domains"], &report["rules"]), (&1.into(), &2.into()));
    assert_eq!(report["problems"][0]["severity"], "warning");
}

#[test]
fn files_of_one_domain_are_merged_on_request() {
    let files = directory("lint-merged");
    for name in ["one", "two"] {
        let text = format!("domain: both\nrules:\n  - {{name: {name}, key: [], limit: 100/second}}\n");
        fs::write(files.join(format!("{name}.yaml")), text).unwrap();
    }
    let files = files.to_str().unwrap();
    assert_eq!(tollgate(&["lint", files], b"").code, 1);
    let output = tollgate(&["lint", "--merge-domains", files], b"");
    assert_eq!((output.code, &*output.out), (0, "1 domain, 2 rules: 0 errors, 0 warnings\n"));
}

#[test]
fn suggestions_are_not_warnings() {
    // Rules, and the suggestions about them.
    let rows: [(&str, &[&str]); 7] = [
        (
            "rules: [{name: r, key: [path], limit: 20/minute}]",
            &["`r`: a sliding window of 20/minute may admit one more"],
        ),
        ("rules: [{name: r, key: [path], limit: 21/minute}]", &[]),
        ("rules: [{name: r, key: [path], limit: 2/minute, algorithm: sliding_log}]", &[]),
        ("rules: [{name: r, key: [path], limit: 2/minute, mode: off}]", &[]),
        (
            "entity: a\nrules:\n  - {name: r, key: [a], limit: 2/minute}\n  - {name: s, key: [a], limit: 3/hour}",
            &["`r` and 1 other rule: a sliding window of 2/minute"],
        ),
        ("rules: [{name: r, key: [user_id], limit: 100/minute}]", &["write `entity: user_id` below `domain`"]),
        (
            "descriptors:\n  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 50}}\n  \
             - {key: route, descriptors: [{key: api_key, rate_limit: {unit: minute, requests_per_unit: 5}}]}",
            &["write `entity: api_key` below `domain`", "`route/api_key`: a sliding window of 5/minute"],
        ),
    ];
    for (rules, expected) in rows {
        let file = rule_file("lint-suggested", &format!("domain: d\n{rules}\n"));
        let output = tollgate(&["lint", &file], b"");
        let found: Vec<&str> = output.out.lines().filter(|line| line.contains(": suggestion: ")).collect();
        assert_eq!((output.code, found.len()), (0, expected.len()), "{rules}: {}", output.out);
        for (line, expected) in found.iter().zip(expected) {
            assert!(line.contains(expected), "{rules}: {line}");
        }
        let summary = output.out.lines().last().unwrap();
        assert!(summary.contains("0 errors, 0 warnings"), "{summary}");
    }
}
