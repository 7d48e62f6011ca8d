//! `tollgate replay`: input that is not as it should be, and readers that go away.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use crate::cli::{Ran, command, directory, rule_file, tollgate};

const RULES: &str = "domain: d\nrules:\n\
    \x20 - {name: r, key: [k], limit: 1000/hour}\n\
    \x20 - {name: priced, key: [k], match: {price: present}, limit: 1000/hour, cost: price}\n";
const GOOD: &str = r#"{"at": 1, "attributes": {"k": "x"}}"#;

fn replay(test: &str, input: &[u8]) -> Ran {
    tollgate(&["replay", "--rules", &rule_file(test, RULES)], input)
}

#[test]
fn a_bad_line_is_told_and_skipped() {
    let attributes = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("\"a{n}\": {n}")).collect();
        format!("{{\"at\": 1, \"attributes\": {{{}}}}}", all.join(", "))
    };
    let descriptors =
        |count: usize| format!("{{\"at\": 1, \"descriptors\": [{}]}}", vec![r#"{"entries": []}"#; count].join(", "));
    let value = |length: usize| format!("{{\"at\": 1, \"attributes\": {{\"k\": \"{}\"}}}}", "v".repeat(length));
    let deep = format!("{{\"at\": 1, \"attributes\": {{\"k\": {}", "[".repeat(100_000));
    let (many, most, too_many) = (attributes(33), descriptors(65), value(4097));
    let rows: [(&str, &str); 31] = [
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
        (r#"{"at": 1, "attributes": {"k": "x", "price": "dear"}}"#, "rule priced takes the cost from attribute price"),
        (r#"{"at": 1, "descriptors": [{"entries": [{"key": "k"}]}]}"#, "missing field `value`"),
        (&many, "at most 32"),
        (&most, "at most 64"),
        (&too_many, "at most 4096 bytes"),
    ];
    for (line, told) in rows {
        let ran = replay("inputs-bad", format!("{GOOD}\n\n{line}\n{GOOD}\n").as_bytes());
        let shown: String = line.chars().take(80).collect();
        assert_eq!(ran.code, 1, "{shown}");
        let left: Vec<bool> =
            [999, 998].iter().map(|left| ran.out.contains(&format!("\"remaining\":{left},"))).collect();
        assert_eq!((ran.out.lines().count(), left), (2, vec![true, true]), "{shown}: {}", ran.out);
        let first = ran.err.lines().next().unwrap();
        assert!(first.starts_with("line 3: ") && first.contains(told) && first.len() < 300, "{shown}: {first}");
        assert!(ran.err.contains("bad lines: 1;"), "{shown}: {}", ran.err);
    }
    // What is just within the bounds is not bad.
    for line in [attributes(32), descriptors(64), value(4096)] {
        assert_eq!(replay("inputs-within", line.as_bytes()).code, 0);
    }
}

#[test]
fn only_so_many_bad_lines_are_told() {
    let told = |bad: usize| {
        let ran = replay("inputs-many", format!("{}{GOOD}\n", "bad\n".repeat(bad)).as_bytes());
        assert_eq!((ran.code, ran.out.lines().count()), (1, 1));
        assert!(ran.err.contains(&format!("bad lines: {bad};")), "{}", ran.err);
        ran.err.lines().filter(|line| line.starts_with("line ")).count()
    };
    assert_eq!((told(99), told(100), told(101), told(500)), (99, 100, 101, 101));
}

#[test]
fn forms_of_text_that_are_tolerated() {
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
    for (what, input, answers) in rows {
        let ran = replay("inputs-forms", &input);
        assert_eq!((ran.code, ran.out.lines().count()), (0, answers), "{what}: {}", ran.err);
    }
    let ran = replay("inputs-utf8", &[b"{\"at\": 1, \"attributes\": {\"k\": \"\xFF\"}}\n", GOOD.as_bytes()].concat());
    assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "not UTF-8: {}", ran.err);
}

#[test]
fn a_line_past_the_bound_is_bad_and_the_next_is_not() {
    const LONGEST: usize = 1 << 20;
    let padded = |length: usize| {
        let head = r#"{"at": 1, "attributes": {"k": "x"}, "pad": ""#;
        format!("{head}{}\"}}", "p".repeat(length - head.len() - 2))
    };
    let input = format!("{}\n{}\n{GOOD}\n", padded(LONGEST), padded(LONGEST + 1));
    let ran = replay("inputs-long", input.as_bytes());
    assert_eq!((ran.code, ran.out.lines().count()), (1, 2), "{}", ran.err);
    assert!(ran.err.starts_with("line 2: it is longer than 1048576 bytes\n"), "{}", ran.err);
}

#[test]
fn bad_rules_are_told_and_nothing_is_read() {
    let rules = rule_file("inputs-rules", "domain: d\nrules:\n  - {name: r, key: [k], limit: lots}\n");
    let ran = tollgate(&["replay", "--rules", &rules], GOOD.as_bytes());
    assert_eq!((ran.code, &*ran.out), (1, ""));
    assert!(ran.err.starts_with(&format!("{rules}:3: error: ")), "{}", ran.err);
}

#[test]
fn an_input_that_cannot_be_read_is_told() {
    let rules = rule_file("inputs-unreadable", RULES);
    let input = File::open(directory("inputs-directory")).unwrap();
    let output = command(&["replay", "--rules", &rules]).stdin(Stdio::from(input)).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.starts_with("standard input can't be read after line 0: "), "{told}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let rules = rule_file("inputs-pipe", RULES);
    let mut child = command(&["replay", "--rules", &rules]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let line = format!("{GOOD}\n");
        while stdin.write_all(line.as_bytes()).is_ok() {}
    });
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    feeding.join().unwrap();
    assert_eq!((child.wait().unwrap().code(), &*told), (Some(0), ""));
}

#[test]
fn an_answer_does_not_wait_for_the_next_request() {
    let rules = rule_file("inputs-live", RULES);
    let mut child = command(&["replay", "--rules", &rules]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        while let Some(Ok(answer)) = answers.next() {
            tell.send(answer).unwrap();
        }
    });
    for left in ["\"remaining\":999,", "\"remaining\":998,"] {
        stdin.write_all(format!("{GOOD}\n").as_bytes()).unwrap();
        let answer = told.recv_timeout(Duration::from_secs(30)).expect("an answer while the input is still open");
        assert!(answer.contains(left), "{answer}");
    }
    drop(stdin);
    reading.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
