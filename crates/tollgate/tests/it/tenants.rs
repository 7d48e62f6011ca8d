//! Tiers and overrides of callers, as a limiter applies them.

use tollgate::tenants::{
    Block, BlockAction, BlockSubject, Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange,
};
use tollgate::{
    CallerTier, Decision, Descriptor, ManualClock, ReceiptWish, Request, RequestOutcome, ResolvedBy, Span, TierOrigin,
    Timestamp, Wait, poll_once,
};
use tollgate_core::Period;

use crate::support::{ManualLimiter, START, manual_limiter};

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 10/h, pro: 100/h, enterprise: 1000/h}, algorithm: fixed_window}
  - {name: tokens, key: [api_key], match: {kind: llm}, limit: 1000/h, algorithm: fixed_window, cost: tokens, settle: true}
  - {name: slots, key: [api_key], match: {kind: slow}, limit: 2 concurrent}
";

struct Fixture {
    limiter: ManualLimiter,
    clock: ManualClock,
}

impl Fixture {
    fn new() -> Fixture {
        let (limiter, clock) = manual_limiter(RULES);
        Fixture { limiter, clock }
    }

    fn check(&self, entries: &[(&str, &str)]) -> Decision {
        let descriptors = [Descriptor::new(entries)];
        let receipt = ReceiptWish::IfNeeded;
        poll_once(self.limiter.check_request(&Request { descriptors: &descriptors, receipt, ..Request::default() }))
            .unwrap()
            .unwrap()
    }

    /// The limit that applies, how it was resolved, and the remaining units.
    fn per_key(&self, caller: &str) -> (u64, ResolvedBy, u64) {
        let decision = self.check(&[("api_key", caller)]);
        let one = decision.tightest().unwrap();
        (one.limit.amount(), one.resolved_by, one.reading.remaining)
    }

    fn set_quota(&self, caller: &str, tier: Option<&str>, overrides: Vec<Override>, during: TimeRange) {
        let stage = QuotaStage { during, tier: tier.map(str::to_owned), home: None, overrides };
        self.limiter.tenants().set_quota("api", caller, Some(&Quota { stages: vec![stage] }));
    }
}

fn per_hour(rule: &str, amount: u64) -> Override {
    let period = Period::fixed(Span::from_secs(3_600)).unwrap();
    let cap = OverrideCap::Rate { amount, period, burst: None };
    Override { selector: Selector::rule(rule), cap, during: TimeRange::ALWAYS }
}

#[test]
fn a_quota_keeps_the_used_units_and_ends_on_time() {
    let fixture = Fixture::new();
    for left in (6..10).rev() {
        assert_eq!(fixture.per_key("a"), (10, ResolvedBy::Tier, left));
    }
    let soon = TimeRange { from: START, until: START.after(Span::from_secs(60)) };
    fixture.set_quota("a", Some("pro"), Vec::new(), soon);
    assert_eq!(fixture.per_key("a"), (100, ResolvedBy::Tier, 95));
    fixture.set_quota("a", Some("pro"), vec![per_hour("per-key", 500)], soon);
    assert_eq!(fixture.per_key("a"), (500, ResolvedBy::Override, 494));
    assert_eq!(fixture.per_key("b"), (10, ResolvedBy::Tier, 9));

    fixture.clock.set(soon.until);
    assert_eq!(fixture.per_key("a"), (10, ResolvedBy::Tier, 3));
}

#[test]
fn receipts_are_settled_under_an_override_that_has_changed_since() {
    let fixture = Fixture::new();
    let attributes = [("api_key", "a"), ("kind", "llm"), ("tokens", "700")];
    fixture.set_quota("a", None, vec![per_hour("tokens", 5_000)], TimeRange::ALWAYS);
    let decision = fixture.check(&attributes);
    assert_eq!(decision.outcomes().map(|one| one.reading.remaining).collect::<Vec<_>>(), [9, 4_300]);
    fixture.set_quota("a", None, vec![per_hour("tokens", 9_000)], TimeRange::ALWAYS);
    let receipt = decision.receipt().unwrap();
    let settled =
        poll_once(fixture.limiter.settle_receipt(receipt, RequestOutcome::Ok, Some(200), None)).unwrap().unwrap();
    let one = settled.rules().next().unwrap();
    assert_eq!((one.limit.amount(), one.reading.remaining), (5_000, 4_800));
    let decision = fixture.check(&[("api_key", "a"), ("kind", "llm"), ("tokens", "0")]);
    assert_eq!(decision.outcomes().last().unwrap().reading.remaining, 8_800);

    // Another period is another counter, which the receipt finds too.
    let minute = OverrideCap::Rate { amount: 900, period: Period::fixed(Span::from_secs(60)).unwrap(), burst: None };
    let minutely = Override { selector: Selector::rule("tokens"), cap: minute, during: TimeRange::ALWAYS };
    fixture.set_quota("a", None, vec![minutely], TimeRange::ALWAYS);
    let decision = fixture.check(&attributes);
    let receipt = decision.receipt().unwrap();
    let settled =
        poll_once(fixture.limiter.settle_receipt(receipt, RequestOutcome::Ok, Some(100), None)).unwrap().unwrap();
    assert_eq!(settled.rules().map(|one| one.reading.remaining).collect::<Vec<_>>(), [800]);
}

#[test]
fn slots_of_an_override_are_released() {
    let fixture = Fixture::new();
    let cap = OverrideCap::Amount(3);
    fixture.set_quota(
        "a",
        None,
        vec![Override { selector: Selector::rule("slots"), cap, during: TimeRange::ALWAYS }],
        TimeRange::ALWAYS,
    );
    let slow = [("api_key", "a"), ("kind", "slow")];
    let held: Vec<Decision> = (0..3).map(|_| fixture.check(&slow)).collect();
    assert!(held.iter().all(Decision::allowed) && !fixture.check(&slow).allowed());
    poll_once(fixture.limiter.settle_receipt(held[0].receipt().unwrap(), RequestOutcome::Ok, None, None))
        .unwrap()
        .unwrap();
    assert!(fixture.check(&slow).allowed() && !fixture.check(&slow).allowed());
}

#[test]
fn a_blocked_caller_is_refused_and_not_counted() {
    let fixture = Fixture::new();
    let until = START.after(Span::from_secs(30));
    let caller = BlockSubject::Caller { domain: "api".to_owned(), caller: "a".to_owned() };
    let block = |action, until| Some(Block { during: TimeRange { from: START, until }, action });
    fixture.limiter.tenants().set_block(&caller, block(BlockAction::Forbidden, until));
    let decision = fixture.check(&[("api_key", "a")]);
    assert!(!decision.allowed() && decision.outcomes().next().is_none());
    assert_eq!((decision.wait(), decision.at()), (Wait::For(Span::from_secs(30)), START));
    fixture.limiter.tenants().set_block(&caller, block(BlockAction::TooMany, Timestamp::MAX));
    assert_eq!(fixture.check(&[("api_key", "a")]).wait(), Wait::Forever);
    fixture.limiter.tenants().set_block(&caller, block(BlockAction::Marked, until));
    let decision = fixture.check(&[("api_key", "a")]);
    assert!(decision.allowed() && decision.block().is_some());
    fixture.clock.set(until);
    let decision = fixture.check(&[("api_key", "a")]);
    assert_eq!(
        (decision.block(), decision.tightest().unwrap().reading.remaining),
        (None, 8),
        "only allowed requests are counted"
    );
}

#[test]
fn explanations_and_peeks_show_overrides() {
    let fixture = Fixture::new();
    fixture.set_quota("a", Some("enterprise"), vec![per_hour("tokens", 77)], TimeRange::ALWAYS);
    let peeked = poll_once(fixture.limiter.peek(None, None, "a", &[])).unwrap().unwrap().unwrap();
    let limits: Vec<_> =
        peeked.counters.iter().map(|(rule, it)| (rule.name.as_str(), it.limit.amount(), it.by)).collect();
    let expected =
        [("per-key", 1_000, ResolvedBy::Tier), ("tokens", 77, ResolvedBy::Override), ("slots", 2, ResolvedBy::Default)];
    assert_eq!(limits, expected);
    let entries = [("api_key", "a"), ("kind", "llm"), ("tokens", "1")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    let explained = poll_once(fixture.limiter.explain(&request)).unwrap().unwrap();
    let limits: Vec<_> =
        explained.rules.iter().flat_map(|rule| &rule.counters).map(|it| (it.limit.amount(), it.by)).collect();
    assert_eq!(limits, [(1_000, ResolvedBy::Tier), (77, ResolvedBy::Override)]);
}

#[test]
fn a_tier_that_requests_name_is_remembered_or_unknown() {
    let (limiter, clock) = manual_limiter(
        "
domain: d
entity: key
tiers: {free: {}, pro: {}}
tier_from: plan
rules:
  - {name: by-tier, key: [key], limit: {free: 10/hour, pro: 100/hour}, algorithm: fixed_window}
  - {name: same, key: [key], limit: 50/hour, algorithm: fixed_window}
",
    );
    let peek = |caller: &str, others: &[(&str, &str)]| {
        let peeked = poll_once(limiter.peek(None, None, caller, others)).unwrap().unwrap().unwrap();
        let limits: Vec<(String, u64)> =
            peeked.counters.iter().map(|(rule, counter)| (rule.name.clone(), counter.limit.amount())).collect();
        (limits, peeked.tier, peeked.left_out)
    };
    let named = |name: &str, amount| (name.to_owned(), amount);
    let (limits, tier, left_out) = peek("ada", &[]);
    assert_eq!((limits, tier), (vec![named("same", 50)], None), "no limit is guessed");
    let why =
        "its limit depends on the tier, which requests name in `plan` and which has not been seen: free 10, pro 100";
    assert_eq!((left_out[0].0.name.as_str(), left_out[0].1.as_str()), ("by-tier", why));
    poll_once(limiter.check("d", [("key", "ada"), ("plan", "pro")])).unwrap().unwrap();
    clock.set(START.after(Span::from_secs(300)));
    let (limits, tier, left_out) = peek("ada", &[]);
    assert_eq!((limits, left_out), (vec![named("by-tier", 100), named("same", 50)], vec![]));
    let tier_of = |name: &str, by, seen| Some(CallerTier { name: name.to_owned(), by, seen });
    assert_eq!(tier, tier_of("pro", TierOrigin::Request, Some(Span::from_secs(300))));
    // Whoever asks may know it.
    assert_eq!(peek("ada", &[("plan", "free")]).0[0], named("by-tier", 10));
    assert_eq!(peek("ada", &[("plan", "free")]).1, tier_of("free", TierOrigin::Request, None));
    assert_eq!(peek("ada", &[("plan", "gold")]).1, tier_of("free", TierOrigin::Default, None));
    // A request without a tier is one of the default tier.
    poll_once(limiter.check("d", [("key", "ada")])).unwrap().unwrap();
    assert_eq!(peek("ada", &[]).0[0], named("by-tier", 10));
    // What operators assign takes precedence, also over what was seen.
    let quota = Quota {
        stages: vec![QuotaStage {
            during: TimeRange::ALWAYS,
            tier: Some("pro".to_owned()),
            home: None,
            overrides: Vec::new(),
        }],
    };
    limiter.tenants().set_quota("d", "ada", Some(&quota));
    assert_eq!(peek("ada", &[]).1, tier_of("pro", TierOrigin::Quota, None));
    limiter.tenants().set_quota("d", "eve", Some(&quota));
    assert_eq!(peek("eve", &[]).1, tier_of("pro", TierOrigin::Quota, None));
}
