//! `tollgate replay`: decisions and the summary.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::{CommandOutput, rule_file, tollgate};

fn replay(rules: &str, input: &str) -> CommandOutput {
    tollgate(&["replay", "--rules", rules], input.as_bytes())
}

/// Replays rows of a line and its expected result: `allowed denied_by rule limit remaining retry_after_us delay_us`, with `-` for
/// null.
fn check(test: &str, rules: &str, rows: &[(&str, &str)]) -> CommandOutput {
    let rules = rule_file(test, rules);
    let input: String = rows.iter().map(|(line, _)| format!("{line}\n")).collect();
    let output = replay(&rules, &input);
    let results: Vec<&str> = output.out.lines().collect();
    assert_eq!(results.len(), rows.len(), "{}", output.err);
    for ((line, expected), result) in rows.iter().zip(results) {
        assert_eq!(shorten(result), *expected, "{line}");
    }
    assert_eq!(output.code, 0, "{}", output.err);
    output
}

fn shorten(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap();
    let keys = ["allowed", "denied_by", "rule", "limit", "remaining", "retry_after_us", "delay_us"];
    let text = |key| match &result[key] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    keys.map(text).join(" ")
}

/// The numbers of each rule in the summary: requests, refused, would refuse, over.
fn summary(output: &CommandOutput) -> HashMap<&str, Vec<u64>> {
    let numbers = |line: &'_ str| line.split_whitespace().skip(1).map(str::parse).collect::<Result<Vec<u64>, _>>().ok();
    let row = |line: &'static str| Some((line.split_whitespace().next()?, numbers(line)?));
    let text: &'static str = output.err.clone().leak();
    text.lines().filter_map(row).filter(|(_, numbers)| numbers.len() == 4).collect()
}

#[test]
fn the_format_of_a_result_is_stable() {
    let rules = rule_file("replay-exact", "domain: d\nrules:\n  - {name: 'a \"b\"', key: [k], limit: 1/minute}\n");
    let output = replay(
        &rules,
        "{\"at\":60,\"attributes\":{\"k\":\"x\"}}\n{\"at\":60.5,\"attributes\":{\"k\":\"x\"}}\n{\"at\":61,\"attributes\":{}}",
    );
    let expected = concat!(
        r#"{"allowed":true,"denied_by":null,"rule":"a \"b\"","limit":1,"remaining":0,"retry_after_us":null,"delay_us":0}"#,
        "\n",
        r#"{"allowed":false,"denied_by":"a \"b\"","rule":"a \"b\"","limit":1,"remaining":0,"retry_after_us":59500001,"delay_us":0}"#,
        "\n",
        r#"{"allowed":true,"denied_by":null,"rule":null,"limit":null,"remaining":null,"retry_after_us":null,"delay_us":0}"#,
        "\n",
    );
    assert_eq!(output.out, expected);
}

#[test]
fn requests_are_decided_at_their_own_time() {
    let rules = "domain: d\nrules:\n  - {name: w, key: [k], limit: 2/minute, algorithm: fixed_window}\n";
    check(
        "replay-time",
        rules,
        &[
            (r#"{"at": 60, "attributes": {"k": "x"}}"#, "true - w 2 1 - 0"),
            (r#"{"at": 119.999999, "attributes": {"k": "x"}}"#, "true - w 2 0 - 0"),
            (r#"{"at": 119.9999994, "attributes": {"k": "x"}}"#, "false w w 2 0 1 0"),
            // Rounded, not truncated: this is the next window.
            (r#"{"at": 119.9999995, "attributes": {"k": "x"}}"#, "true - w 2 1 - 0"),
            (r#"{"at": "1970-01-01T01:02:00.5+01:00", "attributes": {"k": "x"}}"#, "true - w 2 0 - 0"),
            // The clock went back: the counter does not move, and the wait is from this request's time.
            (r#"{"at": 100, "attributes": {"k": "x"}}"#, "false w w 2 0 80000000 0"),
            (r#"{"at": 1.8e2, "attributes": {"k": "x"}}"#, "true - w 2 1 - 0"),
            // A peek takes nothing.
            (r#"{"at": 180, "attributes": {"k": "x"}, "cost": 0}"#, "true - w 2 1 - 0"),
            (r#"{"at": 180, "attributes": {"k": "x"}, "cost": 2}"#, "false w w 2 1 60000000 0"),
            // A cost that never fits has no time to retry.
            (r#"{"at": 180, "attributes": {"k": "x"}, "cost": 3}"#, "false w w 2 1 - 0"),
        ],
    );
}

#[test]
fn calendars_follow_their_zone() {
    let rules = "domain: d\nrules:\n  - {name: day, key: [], limit: 1/day in Europe/Berlin}\n";
    check(
        "replay-calendar",
        rules,
        &[
            (r#"{"at": "2026-03-28T12:00:00Z", "attributes": {}}"#, "true - day 1 0 - 0"),
            (r#"{"at": "2026-03-28T22:59:59.5Z", "attributes": {}}"#, "false day day 1 0 500000 0"),
            (r#"{"at": "2026-03-28T23:00:00Z", "attributes": {}}"#, "true - day 1 0 - 0"),
            // The day on which clocks go forward has 23 hours.
            (r#"{"at": "2026-03-28T23:00:00Z", "attributes": {}}"#, "false day day 1 0 82800000000 0"),
            (r#"{"at": "2026-03-30T00:00:00+02:00", "attributes": {}}"#, "true - day 1 0 - 0"),
        ],
    );
}

#[test]
fn several_limits_have_one_result() {
    let rules = "domain: d\nentity: k\nrules:\n\
        \x20 - {name: wide, key: [k], limit: 5/minute, algorithm: fixed_window}\n\
        \x20 - {name: leaky, key: [k], match: {leaky: present}, limit: 2/second, burst: 9, algorithm: leaky_bucket}\n\
        \x20 - {name: slow, key: [k], match: {slow: present}, limit: 1/hour, algorithm: fixed_window}\n\
        \x20 - {name: slots, key: [k], match: {slot: present}, limit: 1 concurrent, hold: 10s}\n";
    check(
        "replay-several",
        rules,
        &[
            (r#"{"at": 0, "attributes": {"k": 1, "leaky": true}}"#, "true - wide 5 4 - 0"),
            (r#"{"at": 0, "attributes": {"k": 1, "leaky": true}}"#, "true - wide 5 3 - 500000"),
            (r#"{"at": 0, "attributes": {"k": 1, "slow": true}}"#, "true - slow 1 0 - 0"),
            (r#"{"at": 0, "attributes": {"k": 1, "slot": true}}"#, "true - slots 1 0 - 0"),
            (r#"{"at": 4, "attributes": {"k": 1, "slot": true}}"#, "false slots slots 1 0 6000000 0"),
            (r#"{"at": 4, "attributes": {"k": 1, "slot": true, "slow": true}}"#, "false slow slow 1 0 3596000000 0"),
            (r#"{"at": 10, "attributes": {"k": 1, "slot": true}}"#, "true - wide 5 0 - 0"),
            (r#"{"at": 10, "attributes": {"k": 1, "leaky": true}}"#, "false wide wide 5 0 50000000 0"),
            (r#"{"at": 10, "attributes": {"k": 2, "leaky": true}}"#, "true - wide 5 4 - 0"),
        ],
    );
}

#[test]
fn attributes_keep_their_order_and_the_first_of_a_name() {
    let rules = "domain: d\ndescriptors:\n  - key: a\n    descriptors:\n      - key: b\n        rate_limit: {unit: hour, requests_per_unit: 9, name: ab}\n";
    check(
        "replay-order",
        rules,
        &[
            (r#"{"at": 0, "attributes": {"a": "1", "b": "2"}}"#, "true - ab 9 8 - 0"),
            (r#"{"at": 0, "attributes": {"b": "2", "a": "1"}}"#, "true - - - - - 0"),
            (r#"{"at": 0, "attributes": {"a": "1", "b": "2", "a": "x"}}"#, "true - ab 9 7 - 0"),
            (r#"{"at": 0, "attributes": {"a": "1", "a": "x", "b": "2", "b": "y"}}"#, "true - ab 9 6 - 0"),
            // Numbers and escapes are decoded to text.
            (r#"{"at": 0, "attributes": {"\u0061": 1, "b": 2}}"#, "true - ab 9 5 - 0"),
            (r#"{"at": 0, "attributes": {"a": "\u0031", "b": "2"}}"#, "true - ab 9 4 - 0"),
            (r#"{"at": 0, "attributes": {"a": 1.0, "b": 2}}"#, "true - ab 9 8 - 0"),
            (r#"{"at": 0, "attributes": {"a": false, "b": 2}}"#, "true - ab 9 8 - 0"),
            (
                r#"{"at": 0, "descriptors": [{"entries": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}], "hits_addend": 2}]}"#,
                "true - ab 9 2 - 0",
            ),
            (
                r#"{"at": 0, "cost": 2, "descriptors": [{"entries": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}]}"#,
                "true - ab 9 0 - 0",
            ),
            (r#"{"at": 0, "descriptors": []}"#, "true - - - - - 0"),
        ],
    );
}

#[test]
fn the_summary_counts_each_rule() {
    let rules = "domain: d\ndescriptors:\n  - {key: t, rate_limit: {unit: hour, requests_per_unit: 3, name: tree}}\n\
        rules:\n\
        \x20 - {name: hard, key: [k], limit: 2/hour, algorithm: fixed_window}\n\
        \x20 - {name: shadow, key: [k], limit: 1/hour, algorithm: fixed_window, mode: shadow}\n\
        \x20 - {name: soft, key: [k], limit: 1/hour, algorithm: fixed_window, mode: soft}\n\
        \x20 - {name: free, key: [k], limit: unlimited}\n\
        \x20 - {name: idle, key: [nothing], limit: 1/hour}\n";
    let k = r#"{"at": 0, "attributes": {"k": "x"}}"#;
    let t = r#"{"at": 0, "descriptors": [{"entries": [{"key": "t", "value": "1"}]}, {"entries": [{"key": "t", "value": "2"}]}]}"#;
    let output = check(
        "replay-summary",
        rules,
        &[
            (k, "true - hard 2 1 - 0"),
            (k, "true - hard 2 0 - 0"),
            (k, "false hard hard 2 0 3600000000 0"),
            (t, "true - tree 3 2 - 0"),
        ],
    );
    let counts = summary(&output);
    let rows = [
        ("hard", [3, 1, 0, 0]),
        ("shadow", [3, 0, 2, 0]),
        ("soft", [3, 0, 0, 2]),
        ("free", [3, 0, 0, 0]),
        ("idle", [0, 0, 0, 0]),
        // Two descriptors match, and it is one request.
        ("tree", [1, 0, 0, 0]),
    ];
    for (rule, numbers) in rows {
        assert_eq!(counts[rule], numbers, "{rule}: {}", output.err);
    }
    let names: Vec<&str> = output.err.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names[..7], ["rule", "hard", "shadow", "soft", "free", "idle", "tree"]);
    assert!(output.err.contains("\nrequests 4: allowed 3, refused 1; bad lines: 0; "), "{}", output.err);
}

#[test]
fn rules_of_an_any_of_group_refuse_together() {
    let rules = "domain: d\ndescriptors:\n\
        \x20 - {key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, name: one}}\n\
        \x20 - {key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2, name: two}}\n";
    let rules = rule_file("replay-any", rules);
    let line = r#"{"at": 0, "descriptors": [{"entries": [{"key": "a", "value": "1"}]}, {"entries": [{"key": "b", "value": "1"}]}]}"#;
    let output = replay(&rules, &format!("{line}\n{line}\n{line}\n"));
    let allowed: Vec<bool> = output.out.lines().map(|result| result.starts_with("{\"allowed\":true")).collect();
    assert_eq!(allowed, [true, true, false]);
    let counts = summary(&output);
    assert_eq!((&counts["one"][..2], &counts["two"][..2]), (&[3, 1][..], &[3, 1][..]), "{}", output.err);
}

#[test]
fn several_domains_are_named_in_the_summary() {
    let rules = "domain: a\nrules:\n  - {name: r, key: [], limit: 7/hour}\n---\ndomain: b\nrules:\n  - {name: r, key: [], limit: 8/hour}\n";
    let output = check(
        "replay-domains",
        rules,
        &[
            (r#"{"at": 0, "domain": "a", "attributes": {}}"#, "true - r 7 6 - 0"),
            (r#"{"at": 0, "domain": "b", "attributes": {}}"#, "true - r 8 7 - 0"),
            (r#"{"at": 0, "domain": "b", "attributes": {}}"#, "true - r 8 6 - 0"),
        ],
    );
    let counts = summary(&output);
    assert_eq!((counts["a/r"][0], counts["b/r"][0]), (1, 2), "{}", output.err);
}

#[test]
fn the_examples_show_a_refusal_a_delay_and_a_shadow() {
    let requests = std::fs::read_to_string(crate::repository_path("examples/requests.jsonl")).unwrap();
    let output = replay("examples/rules", &requests);
    assert_eq!((output.code, output.out.lines().count()), (0, requests.lines().count()), "{}", output.err);
    let refused = output.out.lines().filter(|result| result.contains("\"allowed\":false")).count();
    assert_eq!(refused, 4);
    assert!(
        output.out.contains("\"denied_by\":\"login\"") && output.out.contains("\"delay_us\":500000"),
        "{}",
        output.out
    );
    assert_eq!(summary(&output)["stricter-reads"], [6, 0, 1, 0]);
}

#[test]
fn results_are_complete_and_in_order() {
    const LINES: u64 = 20_000;
    let rules = rule_file(
        "replay-many",
        "domain: d\nrules:\n  - {name: r, key: [k], limit: 1000000/hour, algorithm: fixed_window}\n",
    );
    let mut input = String::new();
    for n in 0..LINES {
        // Each has its own counter, and differs by the remaining units.
        let _ = writeln!(input, "{{\"at\": {n}, \"attributes\": {{\"k\": {n}}}, \"cost\": {n}}}");
    }
    let output = replay(&rules, &input);
    let left: Vec<u64> = output
        .out
        .lines()
        .map(|result| serde_json::from_str::<Value>(result).unwrap()["remaining"].as_u64().unwrap())
        .collect();
    assert_eq!(left, (0..LINES).map(|n| 1_000_000 - n).collect::<Vec<_>>());
}

#[test]
fn lines_out_of_order_have_the_same_results_in_every_run() {
    let rules = rule_file(
        "out-of-order",
        "domain: d\nrules:\n  - {name: f, key: [k], limit: 1/second, algorithm: fixed_window}\n",
    );
    // Another thousand callers follow after the window, and then one request within the window.
    let mut input = String::from("{\"at\": 1000.9, \"attributes\": {\"k\": \"a\"}}\n");
    for caller in 0..1_000 {
        let _ = writeln!(input, "{{\"at\": 1001.0, \"attributes\": {{\"k\": \"x{caller}\"}}}}");
    }
    input.push_str("{\"at\": 1000.95, \"attributes\": {\"k\": \"a\"}}\n");
    for _ in 0..5 {
        let output = replay(&rules, &input);
        assert_eq!(shorten(output.out.lines().last().unwrap()), "false f f 1 0 50000 0");
    }
}
