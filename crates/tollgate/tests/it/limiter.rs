//! Limiters: decisions without an executor, changes of rules, failures of the store.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::{
    ClaimId, Decision, Descriptor, Explanation, Limiter, Mode, Request, RequestError, RuleMatch, Source, Span, Store,
    Wait, poll_once,
};
use tollgate_core::{Claim, Settlement};

use crate::support::{ManualLimiter, manual_limiter, rules};

fn one_rule(limit: &str) -> String {
    format!("domain: d\nrules:\n  - {{name: r, key: [k], limit: {limit}}}\n")
}

fn limiter(text: &str) -> ManualLimiter {
    manual_limiter(text).0
}

fn check<S: Store>(limiter: &Limiter<S>, entries: &[(&str, &str)]) -> Decision {
    check_cost(limiter, entries, 1).unwrap()
}

/// Checks a request of this cost, and expects a result at the first poll.
fn check_cost<S: Store>(limiter: &Limiter<S>, entries: &[(&str, &str)], cost: u64) -> Result<Decision, RequestError> {
    let descriptors = [Descriptor::new(entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost, ..Request::default() };
    poll_once(limiter.check_request(&request)).expect("the in-memory store is ready at the first poll")
}

fn explain<S: Store>(limiter: &Limiter<S>, entries: &[(&str, &str)], cost: u64) -> Explanation {
    let descriptors = [Descriptor::new(entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost, ..Request::default() };
    poll_once(limiter.explain(&request)).unwrap().unwrap()
}

fn remaining(decision: &Decision) -> u64 {
    decision.tightest().unwrap().reading.remaining
}

#[test]
fn a_changed_amount_keeps_the_used_units() {
    let limiter = limiter(&one_rule("10/m"));
    for _ in 0..4 {
        check(&limiter, &[("k", "a")]);
    }
    limiter.install(rules(&one_rule("100/m"), 2));
    let decision = check(&limiter, &[("k", "a")]);
    assert_eq!((remaining(&decision), decision.generation()), (95, 2));
    limiter.install(rules(&one_rule("5/m"), 3));
    assert!(!check(&limiter, &[("k", "a")]).allowed());
    assert_eq!(limiter.rules().generation(), 3);
}

#[test]
fn a_changed_period_or_algorithm_starts_a_new_counter() {
    let limiter = limiter(&one_rule("10/m"));
    check(&limiter, &[("k", "a")]);
    limiter.install(rules(&one_rule("10/30s"), 2));
    assert_eq!(remaining(&check(&limiter, &[("k", "a")])), 9);
    limiter.install(rules(&one_rule("10/m, algorithm: token_bucket"), 3));
    assert_eq!(remaining(&check(&limiter, &[("k", "a")])), 9);
    limiter.install(rules(&one_rule("10/m, sub_windows: 10"), 4));
    assert_eq!(remaining(&check(&limiter, &[("k", "a")])), 9);
    // The first counter is unchanged.
    limiter.install(rules(&one_rule("10/m"), 5));
    assert_eq!(remaining(&check(&limiter, &[("k", "a")])), 8);
}

#[test]
fn rules_can_change_during_checks() {
    let limiter = limiter(&one_rule("1000/m"));
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let decision = check(&limiter, &[("k", "a")]);
                    // The limit belongs to the rules that decided.
                    let amount = decision.tightest().unwrap().limit.amount();
                    assert_eq!(amount, if decision.generation() % 2 == 1 { 1000 } else { 1001 });
                    admitted.fetch_add(u64::from(decision.allowed()), Ordering::Relaxed);
                }
            });
        }
        for generation in 2..50 {
            limiter.install(rules(&one_rule(if generation % 2 == 1 { "1000/m" } else { "1001/m" }), generation));
        }
    });
    let admitted = admitted.load(Ordering::Relaxed);
    assert!((1000..=1001).contains(&admitted), "{admitted}");
}

#[test]
fn many_threads_admit_exactly_the_limit() {
    for algorithm in ["sliding_window", "token_bucket", "fixed_window", "sliding_log"] {
        let limiter = limiter(&one_rule(&format!("1000/m, algorithm: {algorithm}")));
        let admitted = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        admitted.fetch_add(u64::from(check(&limiter, &[("k", "a")]).allowed()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.load(Ordering::Relaxed), 1000, "{algorithm}");
    }
}

const POLICIES: &str = "
domain: d
tiers: {free: {paid: false}, pro: {}}
default_tier: free
tier_from: plan
rules:
  - {name: comfort, key: [], match: {policy: comfort}, limit: 7/m}
  - {name: security, key: [], match: {policy: security}, limit: 7/m, policy: security}
  - {name: cost, key: [], match: {policy: cost}, limit: 7/m, policy: cost}
  - {name: quota, key: [], match: {policy: quota}, limit: 7/month in UTC}
  - {name: strict, key: [], match: {policy: strict}, limit: 7/m, policy: security, on_failure: allow}
  - {name: shadow, key: [], match: {policy: shadow}, limit: 7/m, policy: security, mode: shadow}
";

/// A store that panics.
struct PanickingStore {
    at: PanicAt,
}

#[derive(Clone, Copy)]
enum PanicAt {
    Call,
    Poll,
}

impl Store for PanickingStore {
    fn settle_into(&self, _claim: &Claim<'_>, _settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        if matches!(self.at, PanicAt::Call) {
            panic!("a bug in the store");
        }
        async { panic!("a bug in the store") }
    }
}

#[test]
fn after_a_panic_in_the_store_the_policies_decide() {
    for at in [PanicAt::Call, PanicAt::Poll] {
        let limiter = Limiter::new(rules(POLICIES, 1), PanickingStore { at });
        let rows = [
            (&[("policy", "comfort")][..], true),
            (&[("policy", "security")], false),
            (&[("policy", "cost")], false),
            (&[("policy", "cost"), ("plan", "pro")], true),
            (&[("policy", "quota")], false),
            (&[("policy", "strict")], true),
        ];
        for (entries, allowed) in rows {
            let decision = check(&limiter, entries);
            assert_eq!(decision.allowed(), allowed, "{entries:?}");
            assert_eq!(decision.source(), Source::Assumed, "{entries:?}");
            assert_eq!(decision.denied_by().is_some(), !allowed);
            // Soon, but not immediately.
            let wait = if allowed { Wait::None } else { Wait::For(Span::from_secs(1)) };
            assert_eq!(decision.wait(), wait, "{entries:?}");
        }
        // A shadow rule does not refuse now either.
        assert!(check(&limiter, &[("policy", "shadow")]).allowed());
        // A request without limits needs no store.
        let free = check(&limiter, &[("policy", "none")]);
        assert_eq!((free.allowed(), free.source()), (true, Source::Store));
    }
}

#[test]
fn a_request_without_limits_is_allowed() {
    let limiter = limiter(
        "domain: d\nrules:\n  - {name: r, key: [k], limit: 1/m}\n  - {name: free, key: [f], limit: unlimited}\n",
    );
    let decision = check(&limiter, &[("f", "a")]);
    assert!(decision.allowed());
    assert_eq!(decision.outcomes().count(), 0);
    assert!(decision.tightest().is_none() && decision.denied_by().is_none());
    assert_eq!((decision.wait(), decision.delay()), (Wait::None, Span::ZERO));
    assert_eq!(decision.unlimited().map(|(rule, _)| rule.name()).collect::<Vec<_>>(), ["free"]);
    assert_eq!(limiter.store().stats().keys, 0);
}

#[test]
fn invalid_requests_are_errors() {
    let limiter = limiter("domain: d\nrules:\n  - {name: r, key: [], limit: 9/m, cost: tokens}\n---\ndomain: e\n");
    let check = |domain, entries: &[(&str, &str)]| {
        let descriptors = [Descriptor::new(entries)];
        let request = Request { domain, descriptors: &descriptors, cost: 1, ..Request::default() };
        poll_once(limiter.check_request(&request)).unwrap().map(|decision| decision.allowed())
    };
    assert_eq!(check(Some("f"), &[]), Err(RequestError::UnknownDomain));
    assert_eq!(check(None, &[]), Err(RequestError::NoDomain));
    assert!(matches!(check(Some("d"), &[("tokens", "1"); 33]), Err(RequestError::TooMany { max: 32, .. })));
    assert_eq!(check(Some("d"), &[("tokens", "9")]), Ok(true));
    assert_eq!(check(Some("d"), &[("tokens", "1")]), Ok(false));
    assert_eq!(check(Some("e"), &[]), Ok(true));
}

const SEVERAL: &str = "
domain: d
rules:
  - {name: window, key: [k], limit: 10/m}
  - {name: bucket, key: [k], limit: 10/m, algorithm: token_bucket}
  - {name: log, key: [k], limit: 10/m, algorithm: sliding_log}
  - {name: shadow, key: [k], limit: 2/m, mode: shadow}
  - {name: in-flight, key: [k], limit: 3 concurrent}
  - {name: other, key: [other], limit: 10/m}
  - {name: free, key: [], limit: unlimited}
";

#[test]
fn explaining_consumes_nothing() {
    let limiter = limiter(SEVERAL);
    let summary = |explanation: &Explanation| {
        let one =
            |rule: &tollgate::ExplainedRule| rule.counters.iter().map(|it| it.reading.remaining).collect::<Vec<_>>();
        explanation.rules.iter().map(one).collect::<Vec<_>>()
    };
    let fresh = summary(&explain(&limiter, &[("k", "a")], 1));
    assert_eq!(fresh, [vec![10], vec![10], vec![10], vec![2], vec![3], vec![], vec![]]);
    assert_eq!(summary(&explain(&limiter, &[("k", "a")], 5)), fresh);
    assert_eq!(limiter.store().stats().keys, 0);

    let used = check(&limiter, &[("k", "a")]);
    assert_eq!(used.outcomes().map(|one| one.reading.remaining).collect::<Vec<_>>(), [9, 9, 9, 1, 2]);
    assert_eq!(
        summary(&explain(&limiter, &[("k", "a")], 1)),
        [vec![9], vec![9], vec![9], vec![1], vec![2], vec![], vec![]]
    );
    assert_eq!(remaining(&check(&limiter, &[("k", "a")])), 1);
}

#[test]
fn an_explanation_has_every_rule_and_its_counters() {
    let limiter = limiter(SEVERAL);
    let explanation = explain(&limiter, &[("k", "a")], 4);
    assert_eq!(explanation.domain, "d");
    let names: Vec<&str> = explanation.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["window", "bucket", "log", "shadow", "in-flight", "other", "free"]);
    let fates: Vec<&RuleMatch> = explanation.rules.iter().map(|rule| &rule.fate).collect();
    let missing = RuleMatch::Misses("its key needs `other`, which the request does not have".to_owned());
    assert_eq!(fates[4..], [&RuleMatch::Applies, &missing, &RuleMatch::Unlimited]);

    let window = &explanation.rules[0].counters[0];
    assert_eq!((&window.key[..], window.limit.amount(), window.units), (&["a".to_owned()][..], 10, 4));
    assert!(window.has_room());
    let shadow = &explanation.rules[3].counters[0];
    assert_eq!(shadow.mode, Mode::Shadow);
    assert!(!shadow.has_room(), "four do not fit in two");
    // A request takes one slot, whatever it costs.
    let in_flight = &explanation.rules[4].counters[0];
    assert_eq!(in_flight.units, 1);
    assert!(in_flight.has_room(), "one of three fits");
}

/// A caller that names its claim holds one slot, however often it checks.
#[test]
fn a_named_claim_holds_one_slot() {
    let limiter = limiter("domain: d\nrules:\n  - {name: r, key: [], limit: 2 concurrent}\n");
    let check = |claim| {
        let request = Request { claim, ..Request::default() };
        poll_once(limiter.check_request(&request)).unwrap().unwrap()
    };
    assert_eq!(remaining(&check(Some(ClaimId(7)))), 1);
    assert_eq!(remaining(&check(Some(ClaimId(7)))), 1);
    // Without a name each request takes another slot.
    assert_eq!(remaining(&check(None)), 0);
    assert!(!check(None).allowed());
    assert!(check(Some(ClaimId(7))).allowed());
}

/// A refused request has exceeded no soft limit.
#[test]
fn exceeded_soft_limits_are_signals() {
    let limiter = limiter(
        "domain: d\nrules:\n  - {name: soft, key: [k], limit: 1/day, mode: soft}\n  - {name: hard, key: [k], limit: 2/day}\n",
    );
    let signals = |decision: &Decision| decision.signals().map(|one| one.rule.name().to_owned()).collect::<Vec<_>>();
    let results: Vec<_> =
        (0..3).map(|_| check(&limiter, &[("k", "a")])).map(|it| (it.allowed(), signals(&it))).collect();
    assert_eq!(results, [(true, vec![]), (true, vec!["soft".to_owned()]), (false, vec![])]);
}

#[test]
fn rules_without_a_key_have_separate_counters() {
    let rule =
        |name: &str, limit: &str| format!("  - {{name: {name}, key: [], limit: {limit}, algorithm: fixed_window}}\n");
    let text = format!("domain: d\nrules:\n{}{}", rule("second", "5/second"), rule("day", "9/day"));
    let limiter = limiter(&text);
    let decision = check(&limiter, &[]);
    let left: Vec<u64> = decision.outcomes().map(|one| one.reading.remaining).collect();
    assert_eq!(left, [4, 8]);
}
