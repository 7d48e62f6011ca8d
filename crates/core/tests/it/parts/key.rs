//! No two counters share a name or a hash, and those of one caller share a partition.

use std::net::Ipv6Addr;

use proptest::prelude::*;
use smallvec::SmallVec;
use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::key::{HashSecret, Home};
use tollgate_core::{Algorithm, Key, Period, Scope, Span, Value};

const SECRET: HashSecret = HashSecret(1, 2);

fn scope(home: Home) -> Scope {
    Scope::new("d", "r", Algorithm::FixedWindow, &Period::fixed(Span::from_secs(1)).unwrap(), home)
}

fn rest(values: &[Value<'_>]) -> u128 {
    Key::new(&scope(Home::Own), SmallVec::from_slice(values)).partition(SECRET)
}

fn partition(scope: &Scope, values: &[Value<'_>]) -> u128 {
    Key::new(scope, SmallVec::from_slice(values)).partition(SECRET)
}

#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Absent,
    Text(String),
    Bytes(Vec<u8>),
    Network(u128, u8),
}

impl Owned {
    fn value(&self) -> Value<'_> {
        match self {
            Owned::Absent => Value::Absent,
            Owned::Text(text) => Value::Text(text),
            Owned::Bytes(bytes) => Value::bytes(bytes),
            Owned::Network(bits, prefix) => Value::network(Ipv6Addr::from_bits(*bits), *prefix),
        }
    }
}

fn lists() -> impl Strategy<Value = Vec<Owned>> {
    let value = prop_oneof![
        Just(Owned::Absent),
        // Bytes like those of lengths and marks, to provoke confusion.
        "[\u{0}-\u{3}]{0,4}".prop_map(Owned::Text),
        ".{0,12}".prop_map(Owned::Text),
        prop::collection::vec(prop_oneof![Just(b'a'), Just(0xff), any::<u8>()], 0..4).prop_map(Owned::Bytes),
        (any::<u128>(), 0u8..=128).prop_map(|(bits, prefix)| Owned::Network(bits, prefix)),
    ];
    prop::collection::vec(value, 0..4)
}

proptest! {
    #[test]
    fn no_two_lists_of_values_hash_the_same(one in lists(), other in lists()) {
        let one: Vec<Value<'_>> = one.iter().map(Owned::value).collect();
        let other: Vec<Value<'_>> = other.iter().map(Owned::value).collect();
        prop_assert_eq!(rest(&one) == rest(&other), one == other);
    }

    #[test]
    fn no_two_scopes_share_a_name(one in ("[a/%2F]{0,4}", "[a/%2F]{0,4}"), other in ("[a/%2F]{0,4}", "[a/%2F]{0,4}")) {
        let period = Period::fixed(Span::from_secs(1)).unwrap();
        let name = |(domain, rule): &(String, String)| {
            Scope::new(domain, rule, Algorithm::FixedWindow, &period, Home::Own).name().to_owned()
        };
        prop_assert_eq!(name(&one) == name(&other), one == other);
    }
}

#[test]
fn a_text_is_never_taken_for_a_network_or_for_nothing() {
    let text = "\u{1}\u{40}\0\0\0\0\0\0\0\0";
    let network = Value::network("0:0:0:c::".parse().unwrap(), 64);
    assert_ne!(rest(&[Value::Text(text)]), rest(&[network]));
    assert_ne!(rest(&[Value::Text("")]), rest(&[Value::Absent]));
    assert_ne!(rest(&[Value::Text("ab"), Value::Text("c")]), rest(&[Value::Text("a"), Value::Text("bc")]));
    assert_ne!(rest(&[Value::Absent, Value::Text("a")]), rest(&[Value::Text("a"), Value::Absent]));
}

#[test]
fn bytes_that_are_a_text_are_that_text() {
    assert_eq!(Value::bytes(b"acme"), Value::Text("acme"));
    assert_eq!(Value::bytes("zürich".as_bytes()), Value::Text("zürich"));
    let (one, other) = (Value::bytes(b"acme\xff"), Value::bytes(b"acme\xfe"));
    assert_ne!(rest(&[one]), rest(&[other]));
    assert_ne!(rest(&[one]), rest(&[Value::Text("acme")]));
    assert_ne!(rest(&[one]), rest(&[Value::Text("acme\u{fffd}")]), "what a lossy reading would make of it");
    assert_eq!(one.to_string(), r"acme\xff");
}

#[test]
fn a_scope_is_named_after_all_that_gives_its_state_a_meaning() {
    let second = Period::fixed(Span::from_secs(1)).unwrap();
    let minute = Period::fixed(Span::from_secs(60)).unwrap();
    let calendar = |unit, zone| Period::calendar(Calendar::new(unit, zone).unwrap());
    let sliding = |sub_windows| Algorithm::SlidingWindow { sub_windows };
    let fixed = Algorithm::FixedWindow;
    let scopes = [
        (fixed, second.clone()),
        (fixed, minute.clone()),
        (sliding(1), minute.clone()),
        (sliding(10), minute.clone()),
        (Algorithm::SlidingLog, minute.clone()),
        (Algorithm::Concurrency, minute.clone()),
        (Algorithm::Bucket { burst: 1, paced: false }, minute.clone()),
        (fixed, calendar(CalendarUnit::Day, "UTC")),
        (fixed, calendar(CalendarUnit::Day, "Europe/Berlin")),
        (fixed, calendar(CalendarUnit::Week, "UTC")),
        (fixed, calendar(CalendarUnit::Month { from_day: 1 }, "UTC")),
        (fixed, calendar(CalendarUnit::Month { from_day: 2 }, "UTC")),
        (fixed, calendar(CalendarUnit::Year, "UTC")),
    ];
    let scopes: Vec<Scope> =
        scopes.iter().map(|(algorithm, period)| Scope::new("d", "r", *algorithm, period, Home::Own)).collect();
    for (at, one) in scopes.iter().enumerate() {
        for other in &scopes[at + 1..] {
            assert_ne!(one.name(), other.name());
            assert_ne!(one.digest(), other.digest());
        }
    }
}

#[test]
fn a_changed_burst_or_pace_keeps_the_counter() {
    let period = Period::fixed(Span::from_secs(1)).unwrap();
    let name =
        |burst, paced| Scope::new("d", "r", Algorithm::Bucket { burst, paced }, &period, Home::Own).name().to_owned();
    assert_eq!(name(1, false), name(9, true));
}

#[test]
fn a_callers_counters_share_a_partition() {
    let period = Period::fixed(Span::from_secs(1)).unwrap();
    let of = |domain, rule, home| Scope::new(domain, rule, Algorithm::FixedWindow, &period, home);
    let (acme, user) = (Value::Text("acme"), Value::Text("ann"));
    let plain = of("d", "per-customer", Home::Caller(0));
    let second = of("d", "per-user", Home::Caller(1));
    assert_eq!(partition(&plain, &[acme]), partition(&second, &[user, acme]), "wherever the caller stands in the key");
    assert_ne!(partition(&plain, &[acme]), partition(&plain, &[user]));
    assert_ne!(partition(&plain, &[acme]), partition(&of("e", "per-customer", Home::Caller(0)), &[acme]), "domains");
    let own = of("d", "own", Home::Own);
    assert_ne!(partition(&own, &[acme]), partition(&plain, &[acme]));
    assert_ne!(partition(&own, &[acme]), partition(&of("d", "other", Home::Own), &[acme]));
}

#[test]
fn the_whole_key_tells_rules_and_other_values_apart() {
    let period = Period::fixed(Span::from_secs(1)).unwrap();
    let of = |rule, home| Scope::new("d", rule, Algorithm::FixedWindow, &period, home);
    let whole = |scope: &Scope, values: &[Value<'_>]| {
        let key = Key::new(scope, SmallVec::from_slice(values));
        key.hash(SECRET, key.partition(SECRET))
    };
    let (acme, ann, bob) = (Value::Text("acme"), Value::Text("ann"), Value::Text("bob"));
    let (one, other) = (of("one", Home::Caller(0)), of("other", Home::Caller(0)));
    assert_eq!(whole(&one, &[acme, ann]), whole(&one, &[acme, ann]));
    assert_ne!(whole(&one, &[acme, ann]), whole(&one, &[acme, bob]));
    assert_ne!(whole(&one, &[acme, ann]), whole(&one, &[acme]));
    assert_ne!(whole(&one, &[acme, ann]), whole(&other, &[acme, ann]));
    assert_ne!(whole(&one, &[acme, ann]), whole(&one, &[ann, acme]));
    assert_ne!(whole(&of("own", Home::Own), &[acme]), whole(&of("own", Home::Own), &[ann]));
    let (own, another) = (of("own", Home::Own), of("another", Home::Own));
    for values in [&[][..], &[acme], &[acme, ann]] {
        assert_ne!(whole(&own, values), whole(&another, values), "{values:?}");
        assert_ne!(partition(&own, values), partition(&another, values), "{values:?}");
    }
    assert_ne!(whole(&own, &[]), whole(&own, &[Value::Absent]));
    assert_ne!(partition(&own, &[]), Key::new(&own, SmallVec::new()).partition(HashSecret(1, 3)), "the secret matters");
    let key = Key::new(&one, SmallVec::from_slice(&[acme]));
    assert_ne!(key.partition(HashSecret(1, 2)), key.partition(HashSecret(1, 3)), "the secret matters");
}

#[test]
fn addresses_count_by_their_network() {
    let network = |address: &str, prefix| Value::network(address.parse().unwrap(), prefix);
    assert_eq!(network("2001:db8:0:1234::1", 56), network("2001:db8:0:1299:ffff::", 56));
    assert_ne!(network("2001:db8:0:1234::1", 56), network("2001:db8:0:1334::1", 56));
    assert_ne!(network("2001:db8::", 56), network("2001:db8::", 64));
    assert_eq!(network("2001:db8::1", 0), network("::", 0));
    assert_eq!(network("2001:db8::1", 128), network("2001:db8::1", 200));
}
