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
    KeyName::from_key(&mut String::from("what was there"), "per-user", &key, None)
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

#[test]
fn private_values_are_masked() {
    let period = Period::fixed(Span::from_secs(60)).unwrap();
    let scope = Scope::new("api", "per-key", Algorithm::FixedWindow, &period, Home::Caller(1));
    let scope = scope.with_private([false, true].into_iter().collect());
    let key = Key::new(&scope, smallvec![Value::Text("GET /"), Value::Text("sk_live_51H8mZqT9f3a")]);
    let secret = tollgate_core::KeySecret::derive(b"a secret of the fleet");
    let name = KeyName::from_key(&mut String::new(), "per-key", &key, secret);
    let masked = "#26f0a07cd8d2b07554bf762c1189cfe1-9f3a";
    assert_eq!((name.key(), name.caller()), (format!("GET /, {masked}").as_str(), Some(masked)));
    // Whoever may see it sees it where it was counted; elsewhere the name is the same.
    assert_eq!((name.clear_key(), name.clear_caller()), ("GET /, sk_live_51H8mZqT9f3a", Some("sk_live_51H8mZqT9f3a")));
    let reported = KeyName::new(name.domain(), name.rule(), name.key(), name.caller());
    assert_eq!((&reported, reported.digest()), (&name, name.digest()));
    assert_eq!((reported.clear_key(), reported.clear_caller()), (name.key(), name.caller()));
}
