//! Digests of private values.

use std::collections::HashSet;

use tollgate_core::key::{Home, Key, PrivateValues, Scope, Value};
use tollgate_core::{Algorithm, KeySecret, Period, Span};

fn secret() -> KeySecret {
    KeySecret::derive(b"a secret of the fleet").unwrap()
}

/// Digests are in names of stored counters: they must never change.
#[test]
fn digests_are_those_of_every_version() {
    let shown = |text: &str| secret().mask(text).to_string();
    assert_eq!(shown("sk_live_51H8mZqT9f3a"), "#26f0a07cd8d2b07554bf762c1189cfe1-9f3a");
    assert_eq!(shown(""), "#00eef6294e745f0ac63a913b467884c2");
    assert_eq!(format!("{:016x}", secret().fingerprint()), "922adfa6ca03b83c");
    assert_eq!(format!("{:032x}", secret().bits()), "cb401b68065959cce68718806597427d");
    assert_eq!(KeySecret::from_bits(secret().bits()), secret());
}

#[test]
fn only_the_end_of_a_long_text_is_shown() {
    let end = |text: &str| secret().mask(text).to_string().split_off(33);
    assert_eq!(end("0123456789abcdef"), "-cdef");
    assert_eq!(end("0123456789abcde"), "");
    assert_eq!(end("ääääääääääääöüßé"), "-öüßé");
    assert_eq!(end("ääääääää"), "");
    assert!(!format!("{:?}", secret()).contains(|c: char| c.is_ascii_digit()));
}

#[test]
fn digests_differ_by_value_and_secret() {
    let other = KeySecret::derive(b"another secret of it").unwrap();
    assert_eq!(KeySecret::derive(b"short"), None);
    let values = [
        Value::Absent,
        Value::Text(""),
        Value::Text("a"),
        Value::bytes(&[0xff]),
        Value::network("::ffff:10.0.0.1".parse().unwrap(), 128),
        Value::network("::ffff:10.0.0.0".parse().unwrap(), 127),
    ];
    let digests: HashSet<u128> =
        values.iter().flat_map(|value| [secret().digest(*value), other.digest(*value)]).collect();
    assert_eq!(digests.len(), 2 * values.len());
    assert_eq!(secret().digest(Value::bytes(b"text")), secret().digest(Value::Text("text")));
    assert_ne!(secret().fingerprint(), other.fingerprint());
}

#[test]
fn private_values_are_marked_and_identify_nothing() {
    let private: PrivateValues = [false, true, false].into_iter().collect();
    assert_eq!([0, 1, 2, 3, 99].map(|index| private.contains(index)), [false, true, false, false, false]);
    assert!(PrivateValues::default().is_empty() && !private.is_empty());
    assert_eq!([0, 1, 2, 63, 64].map(|index| PrivateValues::ODD.contains(index)), [false, true, false, true, true]);
    let period = Period::fixed(Span::from_secs(60)).unwrap();
    let scope = || Scope::new("d", "r", Algorithm::FixedWindow, &period, Home::Own);
    let (clear, marked) = (scope(), scope().with_private(private));
    let hash = |scope: &Scope| {
        let key = Key::new(scope, [Value::Text("a"), Value::Text("b")].into_iter().collect());
        let secret = tollgate_core::key::HashSecret(1, 2);
        key.hash(secret, key.partition(secret))
    };
    assert_eq!((hash(&clear), clear.short(), clear.name()), (hash(&marked), marked.short(), marked.name()));
}
