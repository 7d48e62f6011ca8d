//! `tollgate replay`: invalid input, and readers that close the pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use crate::cli::{CommandOutput, command, directory, rule_file, tollgate};

const RULES: &str = "domain: d\nrules:\n\
    \x20 - {name: r, key: [k], limit: 1000/hour}\n";
const GOOD: &str = r#"{"at": 1, "attributes": {"k": "x"}}"#;

fn replay(test: &str, input: &[u8]) -> CommandOutput {
    tollgate(&["replay", "--rules", &rule_file(test, RULES)], input)
}

#[test]
fn an_invalid_line_is_reported_and_skipped() {
    let attributes = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("\"a{n}\": {n}")).collect();
        format!("{{\"at\": 1, \"attributes\": {{{}}}}}", all.join(", "))
    };
    let descriptors =
        |count: usize| format!("{{\"at\": 1, \"descriptors\": [{}]}}", vec![r#"{"entries": []}"#; count].join(", "));
    let value = |length: usize| format!("{{\"at\": 1, \"attributes\": {{\"k\": \"{}\"}}}}", "v".repeat(length));
    let deep = format!("{{\"at\": 1, \"attributes\": {{\"k\": {}", "[".repeat(100_000));
    let (many, most, too_many) = (attributes(33), descriptors(65), value(4097));
    let rows: [(&str, &str); 30] = [
        ("nonsense", "not a JSON object"),
        ("[1, null, {}]", "not a JSON object"),
        ("7", "not a JSON object"),
        ("{", "(column 1)"),
        (r#"{"at": 1, "attributes": {"k": "x"}} extra"#, "trailing characters"),
        (r#"{"attributes": {"k": "x"}}"#, "missing field `at`"),
        (r#"{"at": 1}"#, "no `attributes`"),
        (r#"{"at": 1, "attributes": null}"#, "no `attributes`"),
        (r#"{"at": 1, "attributes": {}, "descriptors": []}"#, "both"),
        (r#"{"at": 1, "at": 2, "attributes": {}}"#, "duplicate field `at`"),
        (r#"{"at": -1, "attributes": {}}"#, "`at` is `-1`"),
        (r#"{"at": 1e10, "attributes": {}}"#, "`at` is `1e10`"),
        (r#"{"at": "1700000000", "attributes": {}}"#, "`at` is `\"1700000000\"`"),
        (r#"{"at": "2023-11-14", "attributes": {}}"#, "Unix seconds or a time such as"),
        (r#"{"at": null, "attributes": {}}"#, "`at` is `null`"),
        (r#"{"at": [1], "attributes": {}}"#, "`at` is `[1]`"),
        (r#"{"at": 01, "attributes": {}}"#, "invalid number"),
        (r#"{"at": 1, "attributes": [["k", "x"]]}"#, "`attributes` as an object"),
        (r#"{"at": 1, "attributes": {"k": null}}"#, "`null` is not a text"),
        (r#"{"at": 1, "attributes": {"k": {}}}"#, "`{}` is not a text"),
        (r#"{"at": 1, "attributes": {"k": "\ud800"}}"#, "column"),
        (&deep, "column"),
        (r#"{"at": 1, "attributes": {"k": "x"}, "cost": -1}"#, "whole number"),
        (r#"{"at": 1, "attributes": {"k": "x"}, "cost": 1.5}"#, "whole number"),
        (r#"{"at": 1, "attributes": {"k": "x"}, "cost": 18446744073709551616}"#, "whole number"),
        (r#"{"at": 1, "attributes": {"k": "x"}, "domain": "other"}"#, "no domain `other`; the rules have `d`"),
        (r#"{"at": 1, "descriptors": [{"entries": [{"key": "k"}]}]}"#, "missing field `value`"),
        (&many, "at most 32"),
        (&most, "at most 64"),
        (&too_many, "at most 4096 bytes"),
    ];
    for (line, expected) in rows {
        let output = replay("inputs-bad", format!("{GOOD}\n\n{line}\n{GOOD}\n").as_bytes());
        let shown: String = line.chars().take(80).collect();
        assert_eq!(output.code, 1, "{shown}");
        let left: Vec<bool> =
            [999, 998].iter().map(|left| output.out.contains(&format!("\"remaining\":{left},"))).collect();
        assert_eq!((output.out.lines().count(), left), (2, vec![true, true]), "{shown}: {}", output.out);
        let first = output.err.lines().next().unwrap();
        assert!(first.starts_with("line 3: ") && first.contains(expected) && first.len() < 300, "{shown}: {first}");
        assert!(output.err.contains("bad lines: 1;"), "{shown}: {}", output.err);
    }
    // Lines just within the bounds are valid.
    for line in [attributes(32), descriptors(64), value(4096)] {
        assert_eq!(replay("inputs-within", line.as_bytes()).code, 0);
    }
}

#[test]
fn the_number_of_reported_lines_is_bounded() {
    let reported = |bad: usize| {
        let output = replay("inputs-many", format!("{}{GOOD}\n", "bad\n".repeat(bad)).as_bytes());
        assert_eq!((output.code, output.out.lines().count()), (1, 1));
        assert!(output.err.contains(&format!("bad lines: {bad};")), "{}", output.err);
        output.err.lines().filter(|line| line.starts_with("line ")).count()
    };
    assert_eq!((reported(99), reported(100), reported(101), reported(500)), (99, 100, 101, 101));
}

#[test]
fn other_text_encodings_and_line_ends_are_accepted() {
    let rows: [(&str, Vec<u8>, usize); 7] = [
        ("nothing at all", b"".to_vec(), 0),
        ("blank lines", b"\n  \n\t\r\n".to_vec(), 0),
        ("no newline at the end", GOOD.as_bytes().to_vec(), 1),
        ("carriage returns", format!("{GOOD}\r\n{GOOD}\r\n").into_bytes(), 2),
        ("a byte order mark", format!("\u{feff}{GOOD}\n{GOOD}\n").into_bytes(), 2),
        ("spaces around", format!("  {GOOD}\t\n").into_bytes(), 1),
        (
            "other keys, and what may be null",
            br#"{"status": 200, "at": 1, "domain": null, "cost": null, "attributes": {"k": "x"}, "user": {"a": [1]}}"#
                .to_vec(),
            1,
        ),
    ];
    for (what, input, results) in rows {
        let output = replay("inputs-forms", &input);
        assert_eq!((output.code, output.out.lines().count()), (0, results), "{what}: {}", output.err);
    }
    let output =
        replay("inputs-utf8", &[b"{\"at\": 1, \"attributes\": {\"k\": \"\xFF\"}}\n", GOOD.as_bytes()].concat());
    assert_eq!((output.code, output.out.lines().count()), (1, 1), "not UTF-8: {}", output.err);
}

#[test]
fn a_line_beyond_the_bound_is_skipped() {
    const LONGEST: usize = 1 << 20;
    let padded = |length: usize| {
        let head = r#"{"at": 1, "attributes": {"k": "x"}, "pad": ""#;
        format!("{head}{}\"}}", "p".repeat(length - head.len() - 2))
    };
    let input = format!("{}\n{}\n{GOOD}\n", padded(LONGEST), padded(LONGEST + 1));
    let output = replay("inputs-long", input.as_bytes());
    assert_eq!((output.code, output.out.lines().count()), (1, 2), "{}", output.err);
    assert!(output.err.starts_with("line 2: it is longer than 1048576 bytes\n"), "{}", output.err);
}

#[test]
fn invalid_rules_are_reported_and_no_input_is_read() {
    let rules = rule_file("inputs-rules", "domain: d\nrules:\n  - {name: r, key: [k], limit: lots}\n");
    let output = tollgate(&["replay", "--rules", &rules], GOOD.as_bytes());
    assert_eq!((output.code, &*output.out), (1, ""));
    assert!(output.err.starts_with(&format!("{rules}:3: error: ")), "{}", output.err);
}

#[test]
fn an_unreadable_input_is_reported() {
    let rules = rule_file("inputs-unreadable", RULES);
    let input = File::open(directory("inputs-directory")).unwrap();
    let output = command(&["replay", "--rules", &rules]).stdin(Stdio::from(input)).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("standard input can't be read after line 0: "), "{stderr}");
}

#[test]
fn a_closed_output_pipe_ends_the_replay_quietly() {
    let rules = rule_file("inputs-pipe", RULES);
    let mut child = command(&["replay", "--rules", &rules]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let line = format!("{GOOD}\n");
        while stdin.write_all(line.as_bytes()).is_ok() {}
    });
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    feeding.join().unwrap();
    assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(0), ""));
}

#[test]
fn a_result_does_not_wait_for_the_next_request() {
    let rules = rule_file("inputs-live", RULES);
    let mut child = command(&["replay", "--rules", &rules]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        while let Some(Ok(result)) = results.next() {
            sender.send(result).unwrap();
        }
    });
    for left in ["\"remaining\":999,", "\"remaining\":998,"] {
        stdin.write_all(format!("{GOOD}\n").as_bytes()).unwrap();
        let result = receiver.recv_timeout(Duration::from_secs(30)).expect("a result while the input is still open");
        assert!(result.contains(left), "{result}");
    }
    drop(stdin);
    reading.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
