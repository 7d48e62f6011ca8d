//! Records, and what a limiter makes of them.

#![cfg(feature = "control")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use tollgate::control::documents::{EmergencyDocument, Faults, QuotaDocument};
use tollgate::control::lines::{self, Alive, End, Head, Line};
use tollgate::control::{Applied, Controls, Kind, Moment, Record};
use tollgate::{
    Decision, Descriptor, LayerMode, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, ResolvedBy, RuleMode,
    Ruleset, Timestamp, now,
};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/m, pro: 1000/m, enterprise: 5000/m}}
  - {name: orders, key: [api_key], match: {endpoint: POST /api/v1/orders}, limit: 20/m}
";

fn record(generation: u64, kind: Kind, domain: &str, name: &str, document: Option<&str>) -> Record {
    let document = document.map(|text| serde_json::value::RawValue::from_string(text.to_owned()).unwrap());
    Record { generation, kind, domain: domain.to_owned(), name: name.to_owned(), document }
}

fn limiter(controls: &Controls, clock: &ManualClock) -> Limiter<MemoryStore<ManualClock>> {
    let (rules, _) = Ruleset::from_text(RULES, 1).unwrap();
    let limiter = Limiter::new(rules, MemoryConfig::default().build_with(clock.clone())).with_clock(clock.clone());
    limiter.install_tenants(controls.tenants().clone());
    limiter
}

fn check(limiter: &Limiter<MemoryStore<ManualClock>>, entries: &[(&str, &str)]) -> Decision {
    let descriptors = [Descriptor::new(entries)];
    now(limiter.check(&Request { descriptors: &descriptors, ..Request::default() })).unwrap().unwrap()
}

fn limits(decision: &Decision) -> Vec<(u64, ResolvedBy)> {
    decision.outcomes().map(|one| (one.limit.amount(), one.resolved_by)).collect()
}

#[test]
fn the_quota_of_the_seed_documents_means_what_it_says() {
    let (mut controls, clock) = (Controls::default(), ManualClock::at(START));
    let limiter = limiter(&controls, &clock);
    let order = [("api_key", "abc123"), ("endpoint", "POST /api/v1/orders")];
    let quota = r#"{"tier": "enterprise", "overrides": [{"descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute"}],
        "effective_at": "2026-01-01T00:01:00Z", "expires_at": "2026-01-01T00:02:00Z"}"#;
    assert_eq!(controls.apply(&record(4, Kind::Quota, "api", "abc123", Some(quota))), Ok(Applied::Tenants));
    assert_eq!(controls.generation(), 4);
    let before = vec![(100, ResolvedBy::Tier), (20, ResolvedBy::Default)];
    let during = vec![(5_000, ResolvedBy::Tier), (500, ResolvedBy::Override)];
    for (second, expected) in [(0, &before), (59, &before), (60, &during), (119, &during), (120, &before)] {
        clock.set(START.after(tollgate::Span::from_secs(second)));
        assert_eq!(limits(&check(&limiter, &order)), *expected, "at {second} s");
    }
    clock.set(START.after(tollgate::Span::from_secs(60)));
    controls.apply(&record(5, Kind::Quota, "api", "abc123", None)).unwrap();
    assert_eq!(limits(&check(&limiter, &order)), before);
}

#[test]
fn what_is_in_force_stays_until_what_is_scheduled_begins() {
    let (mut controls, clock) = (Controls::default(), ManualClock::at(START));
    let limiter = limiter(&controls, &clock);
    let quota = r#"{"tier": "pro", "expires_at": "2026-01-01T00:01:00Z", "next": {"tier": "enterprise", "effective_at": "2026-01-01T00:01:00Z"}}"#;
    controls.apply(&record(1, Kind::Quota, "api", "a", Some(quota))).unwrap();
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(1_000, ResolvedBy::Tier)]);
    clock.set(START.after(tollgate::Span::from_secs(60)));
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(5_000, ResolvedBy::Tier)]);
}

#[test]
fn all_faults_of_a_document_are_told() {
    let text = r#"{"overrides": [
        {"descriptor": "endpoint:x", "requests_per_unit": 5, "unit": "fortnight"},
        {"requests_per_unit": 5, "unit": "minute"},
        {"descriptor": "a:b", "rule": "c", "limit": "5"},
        {"rule": "a", "limit": "5/m", "unit": "minute"},
        {"rule": "b", "requests_per_unit": 5, "unit": "day", "billing_anchor": 3},
        {"rule": "c", "requests_per_unit": 5, "unit": "month", "billing_anchor": 32},
        {"rule": "d", "requests_per_unit": 9007199254740993, "unit": "year"},
        {"rule": "e", "requests_per_unit": 5, "unit": "month", "zone": "Mars/Base"},
        {"rule": "f", "requests_per_unit": 5, "unit": "month", "billing_anchor": "2025-01-17", "zone": "Europe/Berlin"},
        {"rule": "f", "limit": "unlimited"}
    ], "effective_at": "2026-01-02T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z"}"#;
    let document: QuotaDocument = serde_json::from_str(text).unwrap();
    let mut faults = Faults::default();
    document.meaning(&mut faults);
    let places: Vec<&str> = faults.0.iter().map(|fault| fault.at.as_str()).collect();
    let expected = [
        "expires_at",
        "overrides[0].unit",
        "overrides[1].descriptor",
        "overrides[2].descriptor",
        "overrides[2].limit",
        "overrides[3].limit",
        "overrides[4].billing_anchor",
        "overrides[5].billing_anchor",
        "overrides[7].requests_per_unit",
        "overrides[9]",
    ];
    assert_eq!(places, expected, "{:#?}", faults.0);

    for (text, wanted) in [
        (r#"{"tier": "pro", "teir": 1}"#, "unknown field `teir`"),
        (r#"{"overrides": [{"rule": "a", "limt": "1/m"}]}"#, "unknown field `limt`"),
        (r#"{"overrides": [{"rule": "a", "requests_per_unit": -1}]}"#, "invalid value: integer `-1`"),
        (r#"{"effective_at": "tomorrow"}"#, "\"tomorrow\" is not a moment"),
    ] {
        let error = serde_json::from_str::<QuotaDocument>(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let text = r#"{"percent": 50, "limit": "1/m", "reason": " ", "expires_at": "2026-01-01T00:00:00Z"}"#;
    let mut faults = Faults::default();
    assert_eq!(serde_json::from_str::<EmergencyDocument>(text).unwrap().meaning("", &mut faults), None);
    assert_eq!(faults.0.iter().map(|fault| &*fault.at).collect::<Vec<_>>(), ["reason", "percent"]);
}

#[test]
fn emergencies_blocks_rules_and_switches() {
    let (mut controls, clock) = (Controls::default(), ManualClock::at(START));
    let limiter = limiter(&controls, &clock);
    let emergency = r#"{"percent": 10, "reason": "flood", "expires_at": "2026-01-01T01:00:00Z"}"#;
    controls.apply(&record(1, Kind::Emergency, "api", "flood", Some(emergency))).unwrap();
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(10, ResolvedBy::Emergency)]);
    controls.apply(&record(2, Kind::Emergency, "", "flood", None)).unwrap();
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])).len(), 1, "that of no domain is another");
    clock.set(START.after(tollgate::Span::from_secs(3_600)));
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(100, ResolvedBy::Tier)], "it ended");

    for (name, document) in
        [("a", r#"{"reason": "r"}"#), ("10.0.0.0/8", r#"{"range": true, "status": 429, "reason": "r"}"#)]
    {
        controls.apply(&record(3, Kind::Block, "api", name, Some(document))).unwrap();
    }
    let from = |caller, address| check(&limiter, &[("api_key", caller), ("remote_address", address)]).allowed();
    assert_eq!([from("a", "9.9.9.9"), from("b", "10.1.1.1"), from("b", "9.9.9.9")], [false, false, true]);
    controls.apply(&record(4, Kind::Block, "api", "a", None)).unwrap();
    controls.apply(&record(5, Kind::Block, "api", "10.0.0.0/8", None)).unwrap();
    assert!(from("a", "10.1.1.1"));

    let rule = |state: &str| {
        format!(r#"{{"version": 1, "state": "{state}", "rule": {{"key": ["api_key"], "limit": "7/m"}}}}"#)
    };
    for (state, expected) in [
        ("draft", None),
        ("shadow", Some(Some(LayerMode::Shadow))),
        ("pending", None),
        ("active", Some(None)),
        ("off", Some(Some(LayerMode::Off))),
    ] {
        let applied = controls.apply(&record(6, Kind::Rule, "api", "r", Some(&rule(state))));
        assert_eq!(applied, Ok(Applied::Layer));
        assert_eq!(controls.layer(START).rules.first().map(|rule| rule.mode), expected, "{state}");
    }
    let switch = r#"{"mode": "off", "expires_at": "2026-01-01T00:00:10Z"}"#;
    controls.apply(&record(7, Kind::Switch, "", "", Some(switch))).unwrap();
    let end = START.after(tollgate::Span::from_secs(10));
    assert_eq!(controls.layer_changes_at(START), Some(end));
    let switches = controls.layer(START).switches;
    assert_eq!((switches[0].mode, &switches[0].domain), (RuleMode::Off, &None));
    assert_eq!((controls.layer(end).switches.len(), controls.layer_changes_at(end)), (0, None));
}

#[test]
fn what_can_not_be_read_changes_nothing() {
    let (mut controls, clock) = (Controls::default(), ManualClock::at(START));
    let limiter = limiter(&controls, &clock);
    controls.apply(&record(1, Kind::Quota, "api", "a", Some(r#"{"tier": "pro"}"#))).unwrap();
    let told = controls.apply(&record(2, Kind::Quota, "api", "a", Some(r#"{"tier": "pro", "new": 1}"#))).unwrap_err();
    assert!(told.contains("the quota \"a\" of domain \"api\" can't be read"), "{told}");
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(1_000, ResolvedBy::Tier)]);
    assert_eq!(controls.generation(), 2, "it is not asked for again");
}

#[test]
fn snapshots_there_and_back_and_cut_anywhere() {
    let records = [
        record(3, Kind::Quota, "api", "a", Some(r#"{"tier":"pro"}"#)),
        record(5, Kind::Switch, "", "", Some(r#"{"mode":"off"}"#)),
        record(6, Kind::Quota, "api", "a", None),
    ];
    let mut text = Vec::new();
    lines::write(&mut text, &Head { format: lines::FORMAT, of: "a".to_owned(), as_of: 5 }).unwrap();
    for record in &records[..2] {
        lines::write(&mut text, record).unwrap();
    }
    lines::write(&mut text, &End { records: 2 }).unwrap();
    let whole = text.len();
    lines::write(&mut text, &records[2]).unwrap();
    let added = text.len();
    lines::write(&mut text, &Alive { alive: 7 }).unwrap();

    let read = |bytes: &[u8]| {
        let mut seen = Vec::new();
        let as_of = lines::read(bytes, |line| match line {
            Line::Record(record) => seen.push((record.generation, record.document.is_some())),
            other => panic!("{other:?}"),
        });
        as_of.map(|head| (head.as_of, seen)).map_err(|error| error.to_string())
    };
    assert_eq!(read(&text), Ok((7, vec![(3, true), (5, true), (6, false)])));
    for cut in 0..text.len() {
        match read(&text[..cut]) {
            Ok((as_of, seen)) => {
                assert!(cut >= whole);
                let expected = if cut < added { 2 } else { 3 };
                assert_eq!((as_of, seen.len()), (5, expected), "what was added is read if it is whole");
            }
            Err(why) => assert!(cut < whole, "{why}"),
        }
    }
    // A line that was only half on the disk when the power went.
    let torn = [&text[..added], &[0; 20], b"\n", &text[added..]].concat();
    assert_eq!(read(&torn), Ok((5, vec![(3, true), (5, true), (6, false)])));
    let newer = b"{\"format\":2,\"of\":\"a\",\"as_of\":1}\n";
    assert_eq!(read(newer).unwrap_err(), "snapshot format 2 is not 1");
    let moment: Moment = "2025-02-01T00:00:00+01:00".parse().unwrap();
    assert_eq!(moment.to_string(), "2025-01-31T23:00:00Z");
}
