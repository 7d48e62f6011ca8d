//! `tollgate simulate`: presets, scenario files, reports and errors.

use std::fs;

use serde_json::Value;

use crate::cli::{CommandOutput, directory, rule_file, tollgate};

/// Four servers share a window, with a little more requests than it admits.
const SMALL: &str = "\
name: small
servers: 4
duration: 30s
limits: [{limit: 1000/10s, algorithm: fixed_window}]
traffic: {rate: 120}
";

fn simulate(args: &[&str]) -> CommandOutput {
    tollgate(&[&["simulate"], args].concat(), b"")
}

fn json(output: &CommandOutput) -> Value {
    assert_eq!(output.err, "");
    serde_json::from_str(&output.out).unwrap()
}

#[test]
fn presets_run() {
    let output = simulate(&["random", "--seed", "3"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    for line in ["scenario                random world (seed 3)", "past a limit            by 0 units, 0 times"] {
        assert!(output.out.contains(line), "{line} is missing in\n{}", output.out);
    }
    let output = simulate(&["random", "--seeds", "5"]);
    assert_eq!((output.code, output.out.as_str()), (0, "5 seeds, nothing wrong\n"));
    // A scenario of a preset, by a part of its name.
    let output = simulate(&["exercise", "--only", "fixed_window 0.5", "--json"]);
    let report = json(&output);
    let run = &report["runs"][0];
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!((&run["servers"], &run["excess"], &run["violations"]), (&200.into(), &0.into(), &0.into()));
    assert_eq!(run["command"], "tollgate simulate exercise --only 'fixed_window 0.5' --seed 1");
    assert!(run["goals"].as_array().unwrap().iter().all(|goal| goal["reached"] == true), "{run}");
}

#[test]
fn the_same_seed_has_the_same_report() {
    let file = rule_file("simulate-seed", SMALL);
    let report = |seed: &str| simulate(&[&file, "--seed", seed, "--json"]).out;
    assert_eq!(report("7"), report("7"));
    assert_ne!(report("7"), report("8"));
}

#[test]
fn scenario_files_are_reported_with_a_picture() {
    let file = rule_file("simulate-file", SMALL);
    let picture = directory("simulate-picture").join("run.svg");
    let output = simulate(&[&file, "--picture", picture.to_str().unwrap()]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    for figure in ["small (seed 1)", "1000 in 10 s, fixed_window", "at most 1000 units", "calls a second", "p99.9"] {
        assert!(output.out.contains(figure), "{figure} is missing in\n{}", output.out);
    }
    let picture = fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    let run = &json(&simulate(&[&file, "--json"]))["runs"][0];
    assert_eq!((run["label"].as_str(), run["seconds"].as_f64()), (Some("small"), Some(30.0)));
    assert_eq!(run["most_in_a_window"], 1_000);
    let calls = &run["calls"];
    let kinds = ["exact", "cold", "misses", "ahead", "back"].map(|kind| calls[kind].as_u64().unwrap());
    assert_eq!(calls["total"].as_u64().unwrap(), kinds.iter().sum::<u64>());
    assert!(run["requests"].as_u64().unwrap() > 2 * calls["total"].as_u64().unwrap(), "{calls}");
}

#[test]
fn all_errors_of_a_file_are_reported_with_line_and_remedy() {
    let text = "servers: many\nduration: 10\nlimits:\n  - limit: 100\n    burts: 5\ntraffic:\n  rate: -5\nfaults:\n  - {at: 1s}\n";
    let file = rule_file("simulate-errors", text);
    let output = simulate(&[&file]);
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    let expected = [
        ":1: error: `many` is not a number of servers; write 1 to 5000",
        ":2: error: `10` has no unit; write 10s",
        ":4: error: `100` has no period; write 100/minute",
        ":5: error: `burts` has no meaning here; did you mean `burst`?",
        ":7: error: `-5` is not a rate of requests a second; write ",
        ":9: error: this is not one fault; write one of crash",
    ];
    let lines: Vec<&str> = output.err.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", output.err);
    for (line, expected) in lines.into_iter().zip(expected) {
        let found = line.strip_prefix(&file).unwrap_or(line);
        assert!(found.starts_with(expected), "{line} should be {expected}");
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let with = |line: &str| format!("limits: [{{limit: 10/s}}]\ntraffic: {{rate: 1}}\n{line}\n");
    for (number, (text, expected)) in [
        (with("servers: 0"), "write 1 to 5000"),
        (with("servers: 4000000000"), "write 1 to 5000"),
        (with("shards: 100000"), "write 1 to 1024"),
        (with("duration: 9000d"), "write at most 7d"),
        (with("warm_up: 2m"), "write a shorter one"),
        (with("clock_drift: 18446744073709551616"), "write 0 to 100000"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1e99}\n".to_owned(), "not a rate of requests a second"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1, keys: 99999999999999}\n".to_owned(), "not a number of keys"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1, zipf: .nan}\n".to_owned(), "is not an exponent"),
    ]
    .into_iter()
    .enumerate()
    {
        let output = simulate(&[&rule_file(&format!("simulate-size-{number}"), &text)]);
        assert_eq!(output.code, 1, "{text}: {}", output.err);
        assert!(output.err.contains(expected), "{text}: {}", output.err);
    }
    for (args, expected) in [
        (&["nothing.yaml"][..], "name a scenario file or a preset: exercise, hot, s1, s2, thresholds, regions, random"),
        (&["exercise", "--only", "nothing"], "no scenario of exercise contains `nothing`"),
        (&["exercise", "--seeds", "0"], "--seeds"),
        (&["exercise", "--seed", "first"], "--seed"),
        (&[], "<SCENARIO>"),
    ] {
        let output = simulate(args);
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{args:?}: {}", output.err);
        assert!(output.err.contains(expected), "{args:?}: {}", output.err);
    }
}

/// Clocks that are off by far more than leases allow for let units of a calm window be spent in the next one, which is
/// used up. The simulator must notice that.
#[test]
fn a_seed_that_fails_is_printed_with_its_command() {
    let text = SMALL.replace("rate: 120", "rate: 150, bursts: {on: 12s, off: 7s}") + "clock_drift: 100000\n";
    let file = rule_file("simulate-fails", &text);
    let output = simulate(&[&file, "--seeds", "2", "--seed", "5"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""));
    let repeat = output.out.lines().find_map(|line| line.split_once("; repeat with: ")).unwrap().1;
    let seed = repeat.strip_prefix(&format!("tollgate simulate {file} --seed ")).unwrap();
    assert!(["5", "6"].contains(&seed), "{repeat}");
    assert!(output.out.contains("key 1 of limit 1 is exceeded by "), "{}", output.out);
    // The command shows it again.
    let again = simulate(&[&file, "--seed", seed]);
    assert_eq!(again.code, 1);
    assert!(again.out.contains("exceeded by "), "{}", again.out);
}
