//! Records of the control plane, applied to a limiter.

use tollgate::control::{Controls, Effect, Record, RecordKind};
use tollgate::{Decision, Descriptor, ManualClock, Request, ResolvedBy, poll_once};

use crate::support::{ManualLimiter, START, manual_limiter};

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/m, pro: 1000/m, enterprise: 5000/m}}
  - {name: orders, key: [api_key], match: {endpoint: POST /api/v1/orders}, limit: 20/m}
";

fn record<'r>(
    generation: u64,
    kind: RecordKind,
    domain: &'r str,
    name: &'r str,
    document: Option<&'r str>,
) -> Record<'r> {
    Record { generation, kind, domain: domain.into(), name: name.into(), document: document.map(Into::into) }
}

/// A limiter with these rules, the controls whose tenants it uses, and its clock.
fn controlled(text: &str) -> (Controls, ManualLimiter, ManualClock) {
    let (limiter, clock) = manual_limiter(text);
    let controls = Controls::default();
    limiter.install_tenants(controls.tenants().clone());
    (controls, limiter, clock)
}

fn check(limiter: &ManualLimiter, entries: &[(&str, &str)]) -> Decision {
    let descriptors = [Descriptor::new(entries)];
    poll_once(limiter.check_request(&Request { descriptors: &descriptors, ..Request::default() })).unwrap().unwrap()
}

fn limits(decision: &Decision) -> Vec<(u64, ResolvedBy)> {
    decision.outcomes().map(|one| (one.limit.amount(), one.resolved_by)).collect()
}

#[test]
fn a_quota_with_a_tier_and_an_override_begins_and_ends_on_time() {
    let (mut controls, limiter, clock) = controlled(RULES);
    let order = [("api_key", "abc123"), ("endpoint", "POST /api/v1/orders")];
    let quota = r#"{"tier": "enterprise", "overrides": [{"descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute"}],
        "effective_at": "2026-01-01T00:01:00Z", "expires_at": "2026-01-01T00:02:00Z"}"#;
    assert_eq!(
        controls.apply(&record(4, RecordKind::Quota, "api", "abc123", Some(quota))),
        Ok(Effect::Tenants { reset: false })
    );
    assert_eq!(controls.generation(), 4);
    let before = vec![(100, ResolvedBy::Tier), (20, ResolvedBy::Default)];
    let during = vec![(5_000, ResolvedBy::Tier), (500, ResolvedBy::Override)];
    for (second, expected) in [(0, &before), (59, &before), (60, &during), (119, &during), (120, &before)] {
        clock.set(START.after(tollgate::Span::from_secs(second)));
        assert_eq!(limits(&check(&limiter, &order)), *expected, "at {second} s");
    }
    clock.set(START.after(tollgate::Span::from_secs(60)));
    controls.apply(&record(5, RecordKind::Quota, "api", "abc123", None)).unwrap();
    assert_eq!(limits(&check(&limiter, &order)), before);
}

#[test]
fn the_next_stage_of_a_quota_begins_on_schedule() {
    let (mut controls, limiter, clock) = controlled(RULES);
    let quota = r#"{"tier": "pro", "expires_at": "2026-01-01T00:01:00Z", "next": {"tier": "enterprise", "effective_at": "2026-01-01T00:01:00Z"}}"#;
    controls.apply(&record(1, RecordKind::Quota, "api", "a", Some(quota))).unwrap();
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(1_000, ResolvedBy::Tier)]);
    clock.set(START.after(tollgate::Span::from_secs(60)));
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(5_000, ResolvedBy::Tier)]);
}

#[test]
fn emergencies_and_blocks_are_applied_and_removed() {
    let (mut controls, limiter, clock) = controlled(RULES);
    let emergency = r#"{"percent": 10, "reason": "flood", "expires_at": "2026-01-01T01:00:00Z"}"#;
    controls.apply(&record(1, RecordKind::Emergency, "api", "flood", Some(emergency))).unwrap();
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(10, ResolvedBy::Emergency)]);
    controls.apply(&record(2, RecordKind::Emergency, "", "flood", None)).unwrap();
    assert_eq!(
        limits(&check(&limiter, &[("api_key", "a")])).len(),
        1,
        "an emergency without a domain is another record"
    );
    clock.set(START.after(tollgate::Span::from_secs(3_600)));
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(100, ResolvedBy::Tier)], "the emergency has ended");

    for (name, document) in
        [("a", r#"{"reason": "r"}"#), ("10.0.0.0/8", r#"{"range": true, "status": 429, "reason": "r"}"#)]
    {
        controls.apply(&record(3, RecordKind::Block, "api", name, Some(document))).unwrap();
    }
    let from = |caller, address| check(&limiter, &[("api_key", caller), ("remote_address", address)]).allowed();
    assert_eq!([from("a", "9.9.9.9"), from("b", "10.1.1.1"), from("b", "9.9.9.9")], [false, false, true]);
    controls.apply(&record(4, RecordKind::Block, "api", "a", None)).unwrap();
    controls.apply(&record(5, RecordKind::Block, "api", "10.0.0.0/8", None)).unwrap();
    assert!(from("a", "10.1.1.1"));
}

#[test]
fn emergencies_are_named_by_domain_and_name() {
    let emergency =
        |percent: u32| format!(r#"{{"percent": {percent}, "reason": "flood", "expires_at": "2026-01-01T01:00:00Z"}}"#);
    let text = RULES.replace("domain: api", "domain: a") + "---" + &RULES.replace("domain: api", "domain: a/b");
    let (mut controls, limiter, _) = controlled(&text);
    let limit = |domain: &'static str| {
        let descriptors = [Descriptor::new(&[("api_key", "k")])];
        let request = Request { domain: Some(domain), descriptors: &descriptors, ..Request::default() };
        limits(&poll_once(limiter.check_request(&request)).unwrap().unwrap())[0]
    };
    // Joined by a slash, both would be `a/b/c`.
    controls.apply(&record(1, RecordKind::Emergency, "a", "b/c", Some(&emergency(10)))).unwrap();
    controls.apply(&record(2, RecordKind::Emergency, "a/b", "c", Some(&emergency(20)))).unwrap();
    assert_eq!((limit("a"), limit("a/b")), ((10, ResolvedBy::Emergency), (20, ResolvedBy::Emergency)));
    controls.apply(&record(3, RecordKind::Emergency, "a/b", "c", None)).unwrap();
    assert_eq!((limit("a"), limit("a/b")), ((10, ResolvedBy::Emergency), (100, ResolvedBy::Tier)));
}

#[test]
fn an_invalid_record_changes_nothing() {
    let (mut controls, limiter, _) = controlled(RULES);
    controls.apply(&record(1, RecordKind::Quota, "api", "a", Some(r#"{"tier": "pro"}"#))).unwrap();
    let error =
        controls.apply(&record(2, RecordKind::Quota, "api", "a", Some(r#"{"tier": "pro", "new": 1}"#))).unwrap_err();
    assert!(error.contains("the quota \"a\" of domain \"api\" can't be read"), "{error}");
    assert_eq!(limits(&check(&limiter, &[("api_key", "a")])), [(1_000, ResolvedBy::Tier)]);
    assert_eq!(controls.generation(), 2, "the record is not requested again");
}
