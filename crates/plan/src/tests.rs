//! Changes and what they would do, on small recordings that were worked out by hand, and on random ones.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_core::{Period, Span, Timestamp};
use tollgate_rules::tenants::{Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange};
use tollgate_rules::{Ruleset, Tenants};

use super::*;

const START: u64 = 1_800_000_000;

fn rules(text: &str) -> Ruleset {
    let text = format!("domain: shop\nentity: user\ntiers: {{free: {{paid: false}}, pro: {{}}}}\nrules:\n{text}");
    Ruleset::from_text(&text, 1).unwrap().0
}

/// A request of a user so many milliseconds after the start.
fn request(millis: u64, user: &str) -> TrafficRecord {
    let entries = [("user", user), ("endpoint", "GET /a")];
    let entries = entries.map(|(name, value)| (Arc::from(name), Box::from(value)));
    TrafficRecord {
        at: Timestamp::from_micros(START * 1_000_000 + millis * 1_000),
        domain: None,
        descriptors: Box::new([TrafficDescriptor { entries: Box::new(entries), hits: None }]),
        cost: 1,
        copies: 1,
        callers: 1,
        caller: RecordedCaller::default(),
        limits: Box::default(),
    }
}

fn in_tier(tier: &str, record: TrafficRecord) -> TrafficRecord {
    let caller = RecordedCaller { tier: Some(tier.into()), overrides: Box::default() };
    TrafficRecord { caller, ..record }
}

fn with_used(rule: &str, period: Span, used: u64, record: TrafficRecord) -> TrafficRecord {
    TrafficRecord { limits: Box::new([RecordedLimit { rule: rule.into(), period, used }]), ..record }
}

/// What a change of rules would do.
fn plan(before: &str, after: &str, records: &[TrafficRecord], is_complete: bool) -> PlanReport {
    let (before, after) = (rules(before), rules(after));
    let tenants = tenants_of(records, &before);
    let world = |rules| World { rules, tenants: &tenants };
    compare_worlds(&world(&before), &world(&after), records, is_complete)
}

fn compare_worlds(before: &World<'_>, after: &World<'_>, records: &[TrafficRecord], is_complete: bool) -> PlanReport {
    let mut done = Vec::new();
    let report = compare(before, after, records, is_complete, &mut |part| done.push(part));
    assert!(done.is_sorted() && done.last() == Some(&1.0));
    report
}

const MINUTE: Span = Span::from_secs(60);
const TEN: &str = "  - {name: per-user, key: [user], limit: 10/minute, algorithm: fixed_window}\n";
const FOUR: &str = "  - {name: per-user, key: [user], limit: 4/minute, algorithm: fixed_window}\n";

#[test]
fn a_lower_limit_refuses_what_is_above_it() {
    let mut records: Vec<_> = (0..12).map(|at| in_tier("pro", request(at * 100, "ann"))).collect();
    records.extend((0..3).map(|at| in_tier("free", request(at * 100 + 50, "bob"))));
    let report = plan(TEN, FOUR, &records, true);
    assert_eq!((report.records, report.callers, report.changed_callers), (15, 2, 1));
    let expected = Impact { requests: 15, refused_before: 2, refused_after: 8, newly_refused: 6, newly_admitted: 0 };
    assert_eq!(report.all, expected);
    let [rule] = &report.rules[..] else { panic!("{report:?}") };
    assert_eq!((&*rule.rule, rule.callers, rule.impact.newly_refused, rule.impact.requests), ("per-user", 1, 6, 8));
    let [example] = &rule.examples[..] else { panic!("{rule:?}") };
    assert_eq!((example.is_admitted, example.at), (false, records[4].at));
    assert!(example.wait.is_some_and(|wait| wait <= MINUTE));
    assert_eq!(example.attributes[0], ("user".to_owned(), "ann".to_owned()));
    let worst = report.worst_paid.unwrap();
    assert_eq!((&*worst.caller, &*worst.tier, worst.impact.newly_refused_bps()), ("ann", "pro", 5_000));
    let tiers: Vec<_> = report.tiers.iter().map(|tier| (&*tier.tier, tier.impact.newly_refused)).collect();
    assert_eq!(tiers, [("free", 0), ("pro", 6)]);
    assert_eq!((report.from, report.to), (records[0].at, records[11].at));
}

#[test]
fn a_higher_limit_admits_and_an_equal_one_changes_nothing() {
    let records: Vec<_> = (0..12).map(|at| request(at * 100, "ann")).collect();
    let report = plan(FOUR, TEN, &records, true);
    assert_eq!((report.all.newly_admitted, report.all.newly_refused, report.worst.len()), (6, 0, 1));
    assert_eq!(report.worst_paid, None);
    assert!(report.rules[0].examples[0].is_admitted && report.rules[0].examples[0].wait.is_none());
    let report = plan(TEN, TEN, &records, true);
    assert_eq!((report.all.is_changed(), report.changed_callers, report.all.refused_after), (false, 0, 2));
}

#[test]
fn counters_begin_with_what_they_had() {
    let month = "  - {name: budget, key: [user], limit: 1000/day, algorithm: fixed_window}\n";
    let lower = "  - {name: budget, key: [user], limit: 500/day, algorithm: fixed_window}\n";
    let hourly = "  - {name: budget, key: [user], limit: 500/hour, algorithm: fixed_window}\n";
    let day = Span::from_secs(86_400);
    let records: Vec<_> = (0..5).map(|at| with_used("budget", day, 900 + at, request(at * 100, "ann"))).collect();
    assert_eq!(plan(month, lower, &records, false).all.newly_refused, 5);
    // What was used in another period says nothing.
    assert_eq!(plan(month, hourly, &records, false).all.newly_refused, 0);
}

#[test]
fn counters_of_many_callers_are_judged_by_what_they_had() {
    let (shared, lower) = (
        "  - {name: all, key: [], limit: 100/minute, algorithm: fixed_window}\n",
        "  - {name: all, key: [], limit: 50/minute, algorithm: fixed_window}\n",
    );
    let sampled = |record| TrafficRecord { callers: 20, ..record };
    let records: Vec<_> =
        (0..4).map(|at| sampled(with_used("all", MINUTE, at * 20, request(at * 100, "ann")))).collect();
    let report = plan(shared, lower, &records, false);
    assert_eq!((report.all.requests, report.all.newly_refused), (80, 20));
    assert!(report.uncertain.is_empty());
    // A new rule has no history: a request counts for all that it stands for.
    let records: Vec<_> = (0..4).map(|at| sampled(request(at * 100, "ann"))).collect();
    let report = plan("  []\n", lower, &records, false);
    assert_eq!(report.all.newly_refused, 40);
    assert_eq!((&*report.uncertain[0].rule, report.uncertain.len()), ("all", 1));
}

#[test]
fn requests_in_flight_are_judged_by_those_that_were() {
    let (two, three) = (
        "  - {name: flight, key: [user], limit: 2 concurrent, hold: 10s}\n",
        "  - {name: flight, key: [user], limit: 3 concurrent, hold: 10s}\n",
    );
    let hold = Span::from_secs(10);
    let records: Vec<_> = (0..4).map(|at| with_used("flight", hold, at, request(at * 100, "ann"))).collect();
    let report = plan(three, two, &records, true);
    assert_eq!((report.all.newly_refused, report.all.refused_before), (1, 1));
    let report = plan(three, two, &[request(0, "ann")], true);
    assert_eq!((report.all.refused_after, report.uncertain.len()), (0, 1));
}

#[test]
fn copies_are_spread_over_the_time_since_the_last_request() {
    let bucket = "  - {name: per-user, key: [user], limit: 10/second, burst: 10, algorithm: token_bucket}\n";
    let eight = "  - {name: per-user, key: [user], limit: 8/second, burst: 8, algorithm: token_bucket}\n";
    // Ten requests a second, of which one in twenty was recorded.
    let record = |at: u64| TrafficRecord { copies: 20, ..request(at * 2_000, "ann") };
    let records: Vec<_> = (1..=30).map(record).collect();
    let report = plan(bucket, eight, &records, false);
    assert_eq!(report.all.requests, 600);
    // The first record has no time before it.
    assert!(report.all.refused_before <= 12, "{:?}", report.all);
    let expected = 600 / 5;
    assert!((expected - 20..=expected + 12).contains(&report.all.newly_refused), "{:?}", report.all);
}

#[test]
fn a_callers_own_limit_holds_in_both_worlds_and_is_changed_in_one() {
    let cap = |amount| OverrideCap::Rate { amount, period: Period::fixed(MINUTE).unwrap(), burst: None };
    let own = |record| {
        let caller = RecordedCaller { tier: None, overrides: Box::new([("per-user".into(), cap(20))]) };
        TrafficRecord { caller, ..record }
    };
    let records: Vec<_> = (0..12).map(|at| own(request(at * 100, "ann"))).collect();
    assert_eq!(plan(TEN, FOUR, &records, true).all, Impact { requests: 12, ..Impact::default() });
    let rules = rules(TEN);
    let [before, after] = [(); 2].map(|()| tenants_of(&records, &rules));
    let one = Override { selector: Selector::rule("per-user"), cap: cap(0), during: TimeRange::ALWAYS };
    let stage = QuotaStage { during: TimeRange::ALWAYS, tier: None, home: None, overrides: vec![one] };
    after.set_quota("shop", "ann", Some(&Quota { stages: vec![stage] }));
    let world = |tenants| World { rules: &rules, tenants };
    let report = compare_worlds(&world(&before), &world(&after), &records, true);
    assert_eq!(report.all.newly_refused, 12);
}

#[test]
fn a_rule_in_shadow_that_is_enforced_refuses() {
    let shadow = "  - {name: per-user, key: [user], limit: 4/minute, algorithm: fixed_window, mode: shadow}\n";
    let records: Vec<_> = (0..6).map(|at| request(at * 100, "ann")).collect();
    let report = plan(shadow, FOUR, &records, true);
    assert_eq!((report.all.refused_before, report.all.newly_refused), (0, 2));
}

#[test]
fn requests_of_a_domain_that_is_gone_are_undecided() {
    let after = Ruleset::from_text("domain: other\nrules: []\n", 1).unwrap().0;
    let (before, tenants) = (rules(TEN), Tenants::default());
    let record = TrafficRecord { domain: Some("shop".into()), ..request(0, "ann") };
    let world = |rules| World { rules, tenants: &tenants };
    let report = compare_worlds(&world(&before), &world(&after), &[record], true);
    assert_eq!((report.undecided, report.all.requests), (1, 0));
    assert_eq!(compare_worlds(&world(&before), &world(&before), &[], true).records, 0);
}

#[test]
fn any_number_of_copies_is_bounded() {
    let record = |at: u64| TrafficRecord { copies: u32::MAX, ..request(at * 1_000, "ann") };
    let events = timeline::events(&[record(0), record(1)], |_| None);
    assert!(events.len() as u64 <= MAX_EVENTS + 2, "{}", events.len());
    assert_eq!(events.iter().map(|event| u64::from(event.copies)).sum::<u64>(), 2 * u64::from(u32::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Complete traffic without a history is decided as a limiter decides it.
    #[test]
    fn both_worlds_decide_as_limiters_do(
        steps in prop::collection::vec((0u64..20_000, 0usize..4), 1..120),
        amounts in (1u64..20, 1u64..20),
        algorithm in prop::sample::select(vec!["fixed_window", "sliding_window", "token_bucket", "sliding_log"]),
    ) {
        let mut at = 0;
        let records: Vec<_> = steps
            .iter()
            .map(|(gap, user)| {
                at += gap;
                request(at, ["ann", "bob", "cyd", "dan"][*user])
            })
            .collect();
        let text = |amount| format!(
            "  - {{name: per-user, key: [user], limit: {amount}/minute, algorithm: {algorithm}}}\n  \
             - {{name: all, key: [], limit: 30/minute, algorithm: {algorithm}}}\n"
        );
        let report = plan(&text(amounts.0), &text(amounts.1), &records, true);
        let (before, after) = (decided(&text(amounts.0), &records), decided(&text(amounts.1), &records));
        let both = || before.iter().zip(&after);
        let expected = Impact {
            requests: records.len() as u64,
            refused_before: before.iter().filter(|admitted| !**admitted).count() as u64,
            refused_after: after.iter().filter(|admitted| !**admitted).count() as u64,
            newly_refused: both().filter(|(before, after)| **before && !**after).count() as u64,
            newly_admitted: both().filter(|(before, after)| !**before && **after).count() as u64,
        };
        prop_assert_eq!(report.all, expected);
    }
}

/// Which requests a store admits by these rules.
fn decided(text: &str, records: &[TrafficRecord]) -> Vec<bool> {
    use tollgate_core::{Claim, ClaimId, Descriptor, Request, Settlement, Verdict};
    use tollgate_store::{ManualClock, MemoryConfig, Store};
    let (rules, clock) = (rules(text), ManualClock::default());
    let store = MemoryConfig { grace: rules.longest_period(), ..MemoryConfig::default() }.build_with(clock.clone());
    let mut settlement = Settlement::default();
    let decide = |(number, record): (usize, &TrafficRecord)| {
        clock.set(record.at);
        let entries: Vec<_> = record.descriptors[0].entries.iter().map(|(name, value)| (&**name, &**value)).collect();
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        let claim: Claim<'_> = rules.resolve(&request, ClaimId::generated(1, number as u64)).unwrap().claim;
        settlement.readings.clear();
        {
            let polled = std::pin::pin!(store.settle_into(&claim, &mut settlement));
            assert!(polled.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready());
        }
        Verdict::reach(&claim, &settlement).allowed
    };
    records.iter().enumerate().map(decide).collect()
}
