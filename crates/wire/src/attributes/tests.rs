//! Values that are used as they were sent, and others.

use tollgate::{LoadOptions, Ruleset};
use tollgate_rules::{RuleFile, load_sources};

use super::*;

#[track_caller]
fn check(name: &str, value: &[u8], expected: &str, repair: Option<Repair>) {
    assert_eq!(as_sent(name, value), None, "{name}");
    let mut repairs = Repairs::default();
    assert_eq!(repaired(name, value, &mut repairs), expected, "{name}");
    let mut expected = Repairs::default();
    repair.into_iter().for_each(|repair| expected.add(repair));
    assert_eq!(repairs, expected, "{name}");
}

#[test]
fn usual_values_are_used_as_they_were_sent() {
    let long = "k".repeat(4096);
    for (name, value) in [
        ("api_key", "k1"),
        ("api_key", &long),
        ("host", "localhost:8080"),
        ("remote_address", "203.0.113.7"),
        ("remote_address", "2001:db8::7"),
        ("remote_address", "unknown"),
        ("tollgate.once", &long[..255]),
    ] {
        assert_eq!(as_sent(name, value.as_bytes()), Some(value), "{name}");
    }
}

#[test]
fn ports_are_no_part_of_an_address() {
    check("remote_address", b"203.0.113.7:443", "203.0.113.7", None);
    check("client_ip", b"[2001:db8::7]:443", "2001:db8::7", None);
    check("ip", b"[2001:db8::7]", "2001:db8::7", None);
    check("ip", b"host:443", "host:443", None);
}

#[test]
fn other_values_are_rewritten_and_counted() {
    check("api_key", b"\xff", r"\xff", Some(Repair::NotText));
    let long = "k".repeat(4097);
    check("api_key", long.as_bytes(), &shorten(&long, 4096), Some(Repair::LongText));
    check("tollgate.claim", &long.as_bytes()[..256], &shorten(&long[..256], 255), Some(Repair::BadName));
}

#[test]
fn entries_that_rules_read_stay() {
    let file = RuleFile {
        name: "rules.yaml".to_owned(),
        text: "domain: d\nrules: [{name: r, key: [api_key], match: {plan: pro}, limit: 1/s}]\n".to_owned(),
    };
    let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
    let domain = rules.domain(None).ok();
    let mut repairs = Repairs::default();
    let mut entries: Vec<String> = (0..100).map(|number| format!("q{number}")).collect();
    entries.extend(["api_key", "tollgate.once", "plan", "plan"].map(str::to_owned));
    trim(&mut entries, |name| name, domain, &mut repairs).unwrap();
    assert_eq!(entries.len(), Request::MAX_ENTRIES);
    assert_eq!((&*entries[0], &*entries[28]), ("q0", "q28"));
    assert_eq!(entries[29..], ["api_key", "tollgate.once", "plan"]);
    assert!(repairs.contains(Repair::TooMany));

    let rules: String =
        (0..40).map(|number| format!("  - {{name: r{number}, key: [a{number}], limit: 1/s}}\n")).collect();
    let file = RuleFile { name: "rules.yaml".to_owned(), text: format!("domain: d\nrules:\n{rules}") };
    let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
    let mut entries: Vec<String> = (0..40).map(|number| format!("a{number}")).collect();
    assert_eq!(trim(&mut entries, |name| name, rules.domain(None).ok(), &mut repairs), Err(Undecided));
}
