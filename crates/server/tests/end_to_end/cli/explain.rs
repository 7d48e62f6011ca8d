//! `tollgate explain`.

use serde_json::Value;

use crate::cli::{rule_file, tollgate};

const RULES: &str = r#"
domain: shop
rules:
  - {name: bucket, key: [user], limit: 10/minute, burst: 2x, algorithm: token_bucket}
  - {name: leaky, key: [user], limit: 2/30s, algorithm: leaky_bucket}
  - {name: parts, key: [user], limit: 6/hour, sub_windows: 6}
  - {name: log, key: [user], limit: 5/1500ms, algorithm: sliding_log, mode: shadow}
  - {name: month, key: [user, team?], limit: 9/month from day 17 in Europe/Berlin, mode: soft}
  - {name: slots, key: [], limit: 3 concurrent, hold: 20s}
  - {name: free, key: [], limit: unlimited}
  - {name: writes, key: [user], match: {path: "POST *"}, limit: 1/day}
  - {name: hosts, key: [host], limit: 1/2d}
  - {name: gone, key: [], limit: 1/second, mode: off}
descriptors:
  - {key: user, algorithm: fixed_window, rate_limit: {unit: second, requests_per_unit: 4}}
  - key: team
    value: red
    rate_limit: {unit: second, requests_per_unit: 5}
"#;

#[test]
fn every_rule_is_listed_with_its_reason() {
    let rules = rule_file("explain-all", RULES);
    let output = tollgate(&["explain", "--rules", &rules, "user=ann", "path=GET /x=y"], b"");
    let expected = "\
applies    bucket  10/minute, token bucket with a burst of 20; key [ann]; enforce; takes 1 of 20 left
applies    leaky   2/30s, leaky bucket with a burst of 2; key [ann]; enforce; takes 1 of 2 left
applies    parts   6/hour, sliding window in 6 parts; key [ann]; enforce; takes 1 of 6 left
applies    log     5/1500ms, sliding log; key [ann]; shadow; takes 1 of 5 left
applies    month   9/month from day 17 in Europe/Berlin, fixed window; key [ann, (absent)]; soft; takes 1 of 9 left
applies    slots   3 concurrent, held for 20s at most; key []; enforce; takes 1 of 3 left
unlimited  free    no limit for this request
misses     writes  `path` is \"GET /x=y\", and it must be \"POST *\"
misses     hosts   its key needs `host`, which the request does not have
misses     gone    it is switched off
";
    assert_eq!(output.code, 0, "{}", output.err);
    // The loader names the limits of the tree.
    let listed: String = output.out.lines().skip(2).take(10).map(|line| squeeze(line) + "\n").collect();
    assert_eq!(listed, expected.lines().map(|line| squeeze(line) + "\n").collect::<String>());
    assert!(output.out.contains("fresh counters"), "{}", output.out);
    assert!(
        output.out.ends_with("\nThe request is allowed; the tightest limit is `leaky`, with 1 left.\n"),
        "{}",
        output.out
    );
    assert_eq!(output.err, "");
}

#[test]
fn a_plus_separates_descriptors() {
    let rules = rule_file("explain-plus", RULES);
    // Arguments, and how many limits of the tree apply.
    let rows: [(&[&str], usize); 5] = [
        (&["user=a"], 1),
        (&["user=a", "team=red"], 0),
        (&["user=a", "+", "team=red"], 2),
        (&["team=red", "+", "user=a", "+", "user=b"], 3),
        (&[], 0),
    ];
    for (pairs, expected) in rows {
        let output = tollgate(&[&["explain", "--rules", &rules][..], pairs].concat(), b"");
        let applied = output.out.lines().filter(|line| line.starts_with("applies") && line.contains("/second")).count();
        assert_eq!((output.code, applied), (0, expected), "{pairs:?}: {}{}", output.out, output.err);
    }
}

#[test]
fn json_has_the_same_content() {
    let rules = rule_file("explain-json", RULES);
    let output = tollgate(&["explain", "--rules", &rules, "--json", "--cost", "3", "user=ann"], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&report["domain"], &report["cost"], &report["counters"]), (&"shop".into(), &3.into(), &"fresh".into()));
    assert_eq!((&report["allowed"], &report["denied_by"]), (&false.into(), &"leaky".into()));
    let bucket = &report["rules"][0];
    assert_eq!((&bucket["name"], &bucket["fate"], &bucket["why"]), (&"bucket".into(), &"applies".into(), &Value::Null));
    assert_eq!((&bucket["file"], &bucket["line"]), (&rules.into(), &4.into()));
    let counter = serde_json::json!([{"key": ["ann"], "limit": 10, "period": "minute", "algorithm": "token_bucket",
        "units": 3, "mode": "enforce", "remaining": 20, "has_room": true, "not_leased": "its quota is below 100"}]);
    assert_eq!(bucket["counters"], counter);
    assert_eq!(report["rules"][1]["counters"][0]["has_room"], false);
    assert_eq!((&report["rules"][6]["fate"], &report["rules"][7]["fate"]), (&"unlimited".into(), &"misses".into()));
    assert!(report["rules"][7]["why"].as_str().unwrap().contains("`path`"));
}

#[test]
fn a_request_that_never_fits_is_refused() {
    let rules = rule_file("explain-refused", RULES);
    let output = tollgate(&["explain", "--rules", &rules, "--cost", "21", "user=ann"], b"");
    assert!(output.out.contains("takes 21 of 20 left: no room\n"), "{}", output.out);
    assert!(output.out.contains("\nThe request is refused by `"), "{}", output.out);
    assert_eq!(output.code, 0);
}

#[test]
fn errors_are_reported() {
    let one = rule_file("explain-one", RULES);
    let two = rule_file("explain-two", "domain: a\nrules: []\n---\ndomain: b\nrules: []\n");
    let bad = rule_file("explain-bad", "domain: a\nrulez: []\n");
    let rows: [(&[&str], i32, &str); 9] = [
        (&["--rules", &one, "user"], 2, "`user` is not KEY=VALUE"),
        (&["--rules", &one, "=x"], 2, "`=x` is not KEY=VALUE"),
        (&["--rules", &one, "+", "a=b"], 2, "next to `+`"),
        (&["--rules", &one, "a=b", "+"], 2, "next to `+`"),
        (&["--rules", &one, "--domain", "bakery", "a=b"], 1, "no domain `bakery`; the rules have `shop`"),
        (&["--rules", &two, "a=b"], 1, "name one: `a`, `b`"),
        (&["--rules", &two, "--domain", "c", "a=b"], 1, "no domain `c`; the rules have `a`, `b`"),
        (&["--rules", &bad, "a=b"], 1, ":2: error: "),
        (&["--rules", "no-such-file.yaml", "a=b"], 1, "no-such-file.yaml:1: error: "),
    ];
    for (args, code, expected) in rows {
        let output = tollgate(&[&["explain"], args].concat(), b"");
        assert_eq!((output.code, &*output.out), (code, ""), "{args:?}: {}", output.err);
        assert!(output.err.contains(expected), "{args:?}: {}", output.err);
    }
    let empty = tollgate(&["explain", "--rules", &one, "a="], b"");
    assert_eq!(empty.code, 0, "an empty value is a value: {}", empty.err);
}

/// Reduces the space between columns to one space.
fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
