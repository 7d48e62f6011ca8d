//! What keys are called.

use smallvec::smallvec;
use tollgate::{Algorithm, Span};
use tollgate_core::Period;
use tollgate_core::key::{Home, Scope};

use super::super::*;

fn name(home: Home, values: &[&str]) -> KeyName {
    let period = Period::fixed(Span::from_secs(60)).unwrap();
    let scope = Scope::new("api", "per-user", Algorithm::FixedWindow, &period, home);
    let mut key = Key::new(&scope, smallvec![]);
    if !values.is_empty() {
        key = Key::new(&scope, values.iter().map(|value| Value::Text(value)).collect());
    }
    KeyName::from_key(&mut String::from("what was there"), &key)
}

#[test]
fn a_name_is_domain_rule_and_values() {
    let name = name(Home::Caller(1), &["GET /", "ann"]);
    assert_eq!((name.domain(), name.rule(), name.key()), ("api", "per-user", "GET /, ann"));
    assert_eq!(name.caller(), Some("ann"));
    assert_eq!(name, KeyName::new("api", "per-user", "GET /, ann", Some("ann")));
}

#[test]
fn a_rule_for_all_has_no_values() {
    let name = name(Home::Own, &[]);
    assert_eq!((name.key(), name.caller()), ("", None));
}

#[test]
fn long_names_are_cut_and_stay_apart() {
    let long = |last: &str| name(Home::Caller(0), &[&format!("{}{last}", "ä".repeat(700))]);
    let (one, other) = (long("1"), long("2"));
    assert_ne!(one.key(), other.key());
    assert_eq!(one, long("1"));
    assert!(one.key().len() < 150 && one.key().starts_with("ääää"), "{}", one.key());
    assert_eq!(one.caller(), Some(one.key()));
    // One that begins past the end is omitted.
    assert_eq!(name(Home::Caller(1), &[&"x".repeat(700), "ann"]).caller().unwrap_or(""), "");
    let most = KeyName::new(&"d".repeat(999), &"r".repeat(999), &"k".repeat(999), None);
    assert!(most.bytes() < 400, "{}", most.bytes());
}
