//! Which texts are JSON, and their values.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use super::{read, write};
use crate::yaml;

/// A text that is JSON, and its normalised form.
#[track_caller]
fn check(text: &str, expected: &str) {
    let (values, faults) = read(text).unwrap_or_else(|| panic!("{text} is not JSON"));
    assert!(faults.is_empty(), "{text}: {faults:?}");
    assert_eq!(values.iter().map(write).collect::<Vec<_>>(), [expected], "{text}");
}

#[test]
fn json_is_read_as_it_is_meant() {
    check(r#"{"a": [1, -20, true, null, "x"], "b": {}, "c": []}"#, r#"{"a":[1,-20,true,null,"x"],"b":{},"c":[]}"#);
    check(r#""\ud83d\ude00 \/ \u00e9 \b\f\n\r\t\"\\""#, "\"😀 / é \\u0008\\u000c\\u000a\\u000d\\u0009\\\"\\\\\"");
    check("\u{feff}{\n\t\"a\"\r\n\t:\t1\n}\n", r#"{"a":1}"#);
    // Words and numbers in quotes are texts.
    check(r#"["null", "5", "true", "~", "", "<<"]"#, r#"["null","5","true","~","","<<"]"#);
    check(
        r##"{"<<": {"a": 1}, "&x": "*x", "# no comment": "!tag"}"##,
        r##"{"<<":{"a":1},"&x":"*x","# no comment":"!tag"}"##,
    );
    let long = "k".repeat(3000);
    check(&format!("{{\"{long}\": 1}}"), &format!("{{\"{long}\":1}}"));
    for number in ["0", "-0", "10", "1.5", "1e9", "-1.25E-3"] {
        let (values, _) = read(number).unwrap();
        assert!(matches!(&values[0].kind, yaml::YamlKind::Scalar(scalar) if scalar.plain && scalar.text == number));
    }
}

#[test]
fn what_is_not_json_is_left_to_yaml() {
    let texts = [
        "",
        " ",
        "a: 1",
        "{a: 1}",
        "{\"a\": 1,}",
        "[1 2]",
        "{\"a\"}",
        "{1: 2}",
        "'a'",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "nul",
        "[1",
        "{\"a\": ",
        "\"",
        "\"\\",
        "\"\\u12",
        "\"\\x41\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"a\nb\"",
        "{} {}",
        "[1] # c",
        "\"\\u+123\"",
        "\"\\u00é\"",
    ];
    for text in texts {
        assert!(read(text).is_none(), "{text}");
    }
}

#[test]
fn lines_twins_and_depth_are_as_in_yaml() {
    let text = "{\n\"a\": 1,\n\"a\": [\n2]}";
    let (_, faults) = read(text).unwrap();
    let (_, as_yaml) = yaml::read(text);
    assert_eq!(faults, as_yaml);
    assert_eq!(faults[0].0, 3);
    for depth in [yaml::MAX_DEPTH, yaml::MAX_DEPTH + 1, 100_000] {
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let (_, faults) = read(&text).unwrap();
        assert_eq!(faults.len(), usize::from(depth > yaml::MAX_DEPTH), "{depth}");
    }
}

/// A JSON text has the same value in YAML, if YAML can read it.
#[test]
fn both_readers_agree() {
    let texts = [
        r#"{"key": ["user_id"], "limit": {"free": "1/s", "pro": 5}, "x": [true, null, -3, "a\/b", "\u00e4"]}"#,
        "[[], {}, [{\"a\": {\"b\": []}}]]",
        "\"one\"",
        "17",
    ];
    for text in texts {
        let (values, faults) = yaml::read(text);
        assert!(faults.is_empty(), "{text}: {faults:?}");
        let (json, _) = read(text).unwrap();
        assert_eq!(json.iter().map(write).collect::<Vec<_>>(), values.iter().map(write).collect::<Vec<_>>(), "{text}");
    }
}
