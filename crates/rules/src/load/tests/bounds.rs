//! The behaviour at each bound.

use super::super::MAX_FILE_BYTES;
use super::{load, text_of};
use crate::problem::MAX_PROBLEMS;
use crate::yaml::{MAX_DEPTH, MAX_STRETCH_CHARS, MAX_WEIGHT};

fn errors(text: &str) -> String {
    text_of(&load(text).unwrap_err())
}

#[test]
fn a_file_is_so_long_and_no_longer() {
    let mut text = "domain: d\nx:\n".to_owned();
    while text.len() + 1_000 <= MAX_FILE_BYTES {
        text.push_str(&format!("- {}\n", "y".repeat(997)));
    }
    text.push_str(&"\n".repeat(MAX_FILE_BYTES - text.len()));
    assert!(errors(&text).contains("`x` is not a key"), "{}", errors(&text));
    text.push('\n');
    assert_eq!(errors(&text), "f:1: error: the file is longer than 16 MiB; split it");
}

#[test]
fn values_nest_so_deep_and_no_deeper() {
    let nested = |depth: usize| format!("{}x{}", "[".repeat(depth), "]".repeat(depth));
    // The document's own map is one level.
    assert!(errors(&format!("domain: d\nx: {}\n", nested(MAX_DEPTH - 1))).contains("`x` is not a key"));
    let too_deep = format!("f:2: error: values nest more than {MAX_DEPTH} deep here; write them flatter");
    assert_eq!(errors(&format!("domain: d\nx: {}\n", nested(MAX_DEPTH))), too_deep);
    // The repetitions of an alias count too.
    let halves = |depth: usize| {
        format!("domain: d\nx: &x {0}\ny: [{1}*x{2}]\n", nested(40), "[".repeat(depth), "]".repeat(depth))
    };
    assert!(errors(&halves(MAX_DEPTH - 42)).contains("`x` is not a key"));
    assert_eq!(errors(&halves(MAX_DEPTH - 41)), too_deep.replace("f:2", "f:3"));
}

#[test]
fn a_tree_can_be_as_deep_as_a_request() {
    let mut text = "domain: d\n".to_owned();
    for depth in 0..tollgate_core::Request::MAX_ENTRIES {
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}descriptors:\n{indent}- key: k\n"));
    }
    text.push_str(&format!("{}rate_limit: {{unit: day, replaces: [{{name: n}}]}}\n", "  ".repeat(32)));
    assert_eq!(load(&text).map(|loaded| loaded.domains.len()), Ok(1));
}

#[test]
fn aliases_can_not_make_much_of_little() {
    let mut text = "a: &a [xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]\n".to_owned();
    for (from, to) in ('a'..'y').zip('b'..'z') {
        text.push_str(&format!(
            "{to}: &{to} [*{from}, *{from}, *{from}, *{from}, *{from}, *{from}, *{from}, *{from}]\n"
        ));
    }
    let reported = errors(&text);
    let message = format!("the values of this file, with what its aliases repeat, pass {} MiB", MAX_WEIGHT >> 20);
    assert!(reported.contains(&message), "{reported}");
}

#[test]
fn what_stands_between_brackets_is_so_long_and_no_longer() {
    let long = |length: usize| format!("domain: d\nx:\n- [{}]\n", " a,\n".repeat(length / 4));
    assert!(errors(&long(MAX_STRETCH_CHARS - 100)).contains("`x` is not a key"));
    let message = "f:3: error: a value that begins about here is longer than 2 MiB; \
                   write lists and maps in lines of their own, without brackets";
    assert_eq!(errors(&long(MAX_STRETCH_CHARS + 100)), message);
}

#[test]
fn the_number_of_reported_problems_is_bounded() {
    let text = format!("domain: d\nrules:\n{}", "- {name: r}\n".repeat(MAX_PROBLEMS));
    let problems = load(&text).unwrap_err();
    assert_eq!(problems.len(), MAX_PROBLEMS + 1);
    let last = problems.last().unwrap().to_string();
    assert!(last.ends_with("and more: only the first 1000 are reported; correct those first"), "{last}");

    let mut text = "domain: d\nentity: a\nrules:\n".to_owned();
    for number in 0..=MAX_PROBLEMS {
        text.push_str(&format!("- {{name: r{number}, key: [a], limit: {{free: 1/s}}}}\n"));
    }
    let warnings = load(&text).unwrap().warnings;
    assert_eq!(warnings.len(), MAX_PROBLEMS + 1);
}

#[test]
fn texts_are_so_long_and_no_longer() {
    let key = |length: usize| format!("domain: d\nrules:\n- {{name: r, key: [{}], limit: 1/s}}\n", "a".repeat(length));
    assert!(load(&key(4_096)).is_ok());
    assert!(errors(&key(4_097)).contains("`key` is longer than what a request may carry"));
    let name = |length: usize| format!("domain: d\nrules:\n- {{name: {}, key: [], limit: 1/s}}\n", "a".repeat(length));
    assert!(load(&name(128)).is_ok());
    assert!(errors(&name(129)).contains("can't be a name"));
    let path = |length: usize| {
        format!("domain: d\ndescriptors:\n- {{key: {}, rate_limit: {{unit: day}}}}\n", "a".repeat(length))
    };
    assert!(load(&path(1_024)).is_ok());
    assert!(errors(&path(1_025)).contains("give the `rate_limit` a `name` of its own"));
    assert!(load(&path(1_025).replace("unit", "name: n, unit")).is_ok());
}

#[test]
fn tiers_and_parts_of_keys_are_so_many_and_no_more() {
    let list = |count: usize| (0..count).map(|number| format!("a{number}")).collect::<Vec<_>>().join(", ");
    assert!(load(&format!("domain: d\ntiers: {{{}}}\n", list(64))).is_ok());
    assert!(errors(&format!("domain: d\ntiers: {{{}}}\n", list(65))).contains("there are 65 tiers"));
    assert!(load(&format!("domain: d\nrules:\n- {{name: r, key: [{}], limit: 1/s}}\n", list(16))).is_ok());
    assert!(
        errors(&format!("domain: d\nrules:\n- {{name: r, key: [{}], limit: 1/s}}\n", list(17))).contains("17 parts")
    );
}
