//! Replays after a change of rules: a decision or a settlement is final.

use tollgate::{
    CounterChange, Decision, Descriptor, ManualClock, ReceiptWish, Replay, Request, RequestOutcome, Span, Wait,
    poll_once,
};

use crate::support::{ManualLimiter, START, manual_limiter, rules};

const FIRST: &str = "
domain: d
entity: key
rules:
  - {name: day, key: [key], limit: 10/day, algorithm: fixed_window, refund: on_failure}
  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}
  - {name: in-flight, key: [key], limit: 5 concurrent, hold: 10m}
";

struct Fixture {
    clock: ManualClock,
    limiter: ManualLimiter,
}

impl Fixture {
    fn new() -> Fixture {
        let (limiter, clock) = manual_limiter(FIRST);
        Fixture { limiter, clock }
    }

    fn check(&self, once: Option<&str>, cost: u64) -> Decision {
        let (entries, receipt) = ([("key", "k")], ReceiptWish::Always);
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, once, cost, receipt, ..Request::default() };
        let decision = poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
        let mut session = self.limiter.session();
        if once.is_some() {
            // A session replays the same decision.
            let again = poll_once(session.check_request(&request)).unwrap().unwrap();
            assert_eq!((again.allowed(), again.wait()), (decision.allowed(), decision.wait()));
            assert_eq!(remaining(again), remaining(&decision));
            assert_eq!(again.receipt(), decision.receipt());
        }
        decision
    }

    /// How many units each rule has left.
    fn left_by_rule(&self) -> Vec<(String, u64)> {
        remaining(&self.check(None, 0))
    }
}

/// Each rule's name and remaining units.
fn remaining(decision: &Decision) -> Vec<(String, u64)> {
    decision.outcomes().map(|one| (one.rule.name().to_owned(), one.reading.remaining)).collect()
}

#[test]
fn a_replay_under_other_rules_has_only_the_verdict() {
    // Another amount, another mode, one rule more, one fewer, another order, another period, no limit.
    for other in [
        FIRST.replace("3/hour", "2/hour"),
        FIRST.replace("3/hour,", "3/hour, mode: shadow,"),
        format!("{FIRST}  - {{name: minute, key: [key], limit: 9/minute}}\n"),
        FIRST.replace("  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}\n", ""),
        "domain: d\nentity: key\nrules:\n  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}
  - {name: day, key: [key], limit: 10/day, algorithm: fixed_window}\n"
            .to_owned(),
        FIRST.replace("10/day", "10/week"),
        FIRST.replace("10/day", "unlimited").replace(", algorithm: fixed_window, refund: on_failure", ""),
    ] {
        let fixture = Fixture::new();
        let first = fixture.check(Some("passes"), 1);
        assert!(first.allowed() && first.replay() == Replay::First && first.receipt().is_some());
        fixture.limiter.install(rules(&other, 1));
        fixture.clock.set(START.after(Span::from_secs(60)));
        let left = fixture.left_by_rule();

        let passed = fixture.check(Some("passes"), 1);
        assert!(matches!(passed.replay(), Replay::Again { passed: true, .. }), "{other}");
        assert!(passed.allowed() && passed.wait() == Wait::None, "{other}");
        assert_eq!((remaining(&passed), passed.unlimited().count()), (vec![], 0), "{other}");
        assert!(passed.tightest().is_none() && passed.receipt().is_none(), "{other}");
        assert_eq!(fixture.left_by_rule(), left, "nothing was taken: {other}");

        let conflict = fixture.check(Some("passes"), 2);
        assert_eq!(conflict.replay(), Replay::Conflict, "{other}");
        // The same rules again are the same terms.
        fixture.limiter.install(rules(FIRST, 1));
        let known = fixture.check(Some("passes"), 1);
        assert_eq!((remaining(&known), known.receipt()), (remaining(&first), first.receipt()), "{other}");
    }
}

#[test]
fn rules_that_do_not_apply_do_not_change_the_terms() {
    let fixture = Fixture::new();
    let first = fixture.check(Some("name"), 1);
    fixture.limiter.install(rules(&format!("{FIRST}  - {{name: others, key: [other], limit: 1/day}}\n"), 1));
    let again = fixture.check(Some("name"), 1);
    assert_eq!((remaining(&again), again.receipt()), (remaining(&first), first.receipt()));
}

#[test]
fn a_replayed_settlement_under_other_rules_lists_no_rules() {
    let fixture = Fixture::new();
    let decision = fixture.check(None, 1);
    let receipt = decision.receipt().unwrap();
    let settle =
        || poll_once(fixture.limiter.settle_receipt(receipt, RequestOutcome::Failed, None, None)).unwrap().unwrap();
    let changes = [CounterChange::Returned(1), CounterChange::Released];
    assert_eq!(settle().rules().map(|one| one.change).collect::<Vec<_>>(), changes);
    fixture.limiter.install(rules(&FIRST.replace("in-flight", "renamed"), 1));
    let again = settle();
    assert!(again.is_replay() && again.rules().next().is_none(), "{again:?}");
    fixture.limiter.install(rules(FIRST, 1));
    assert_eq!(settle().rules().map(|one| one.change).collect::<Vec<_>>(), changes);
    assert!(settle().is_replay());
}

/// A request that counters of its caller and of all callers apply to.
const SHARED: &str = "
domain: d
entity: key
rules:
  - {name: shared, key: [], limit: 1000/day, refund: on_failure, cost: cost}
";
const MINE: &str = "  - {name: mine, key: [key], limit: 100/day, refund: on_failure, cost: cost}\n";

fn shared_left(limiter: &ManualLimiter) -> u64 {
    let entries = [("key", "k"), ("cost", "0")];
    let descriptors = [Descriptor::new(&entries)];
    let peek = Request { descriptors: &descriptors, cost: 0, ..Request::default() };
    let peek = poll_once(limiter.check_request(&peek)).unwrap().unwrap();
    peek.outcomes().find(|one| one.rule.name() == "shared").unwrap().reading.remaining
}

#[test]
fn a_receipt_is_settled_once_under_all_rules() {
    let both = format!("{SHARED}{MINE}");
    let versions = [
        both.clone(),
        SHARED.to_owned(),
        both.replace("100/day", "100/hour"),
        both.replace("name: mine", "name: yours"),
        format!("{SHARED}  - {{name: more, key: [key], limit: 5 concurrent, hold: 1m}}\n"),
    ];
    for first in 0..versions.len() {
        // Issued under both rules, settled under each version in turn.
        let (limiter, _clock) = manual_limiter(&both);
        let entries = [("key", "k"), ("cost", "10")];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        let decision = poll_once(limiter.check_request(&request)).unwrap().unwrap();
        let receipt = decision.receipt().unwrap();
        poll_once(limiter.check_request(&request)).unwrap().unwrap();
        assert_eq!(shared_left(&limiter), 980);
        for turn in 0..2 * versions.len() {
            limiter.install(rules(&versions[(first + turn) % versions.len()], turn as u64 + 2));
            let settled = poll_once(limiter.settle_receipt(receipt, RequestOutcome::Failed, None, None)).unwrap();
            assert_eq!(settled.unwrap().is_replay(), turn > 0, "version {first}, turn {turn}");
            assert_eq!(shared_left(&limiter), 990, "version {first}, turn {turn}");
        }
    }
}

#[test]
fn an_idempotency_key_is_decided_once_under_all_rules() {
    let versions = [
        SHARED.to_owned(),
        format!("{SHARED}{MINE}"),
        format!("{SHARED}{MINE}").replace("100/day", "100/hour"),
        format!("{SHARED}  - {{name: pair, key: [key, cost], limit: 70/day}}\n"),
    ];
    for first in 0..versions.len() {
        let (limiter, _clock) = manual_limiter(&versions[first]);
        for turn in 0..2 * versions.len() {
            limiter.install(rules(&versions[(first + turn) % versions.len()], turn as u64 + 2));
            let entries = [("key", "k"), ("cost", "10")];
            let descriptors = [Descriptor::new(&entries)];
            let request = Request { descriptors: &descriptors, once: Some("pay-1"), ..Request::default() };
            let decision = poll_once(limiter.check_request(&request)).unwrap().unwrap();
            assert!(decision.allowed());
            assert_eq!(shared_left(&limiter), 990, "version {first}, turn {turn}");
        }
    }
}
