//! Receipts: what a check took is settled when its request has ended, in one claim, once.

use tollgate::{
    CounterChange, Decision, Descriptor, KeyError, ManualClock, Receipt, ReceiptError, ReceiptKeys, ReceiptWish,
    Request, RequestOutcome, SettleError, SettledReceipt, Span, poll_once,
};

use crate::support::{ManualLimiter, START, manual_limiter};

const RULES: &str = "
domain: llm
entity: key
rules:
  - {name: in-flight, key: [key], limit: 2 concurrent, hold: 30s}
  - {name: tokens, key: [key], limit: 1000/day, cost: tokens, settle: true, hold: 2m}
  - {name: orders, key: [key], match: {what: order}, limit: 5/day, refund: on_failure}
  - {name: plain, key: [key], limit: 100/day}
  - {name: budget, key: [user], limit: 1000/day, cost: tokens, settle: true}
";

struct Fixture {
    clock: ManualClock,
    limiter: ManualLimiter,
}

impl Fixture {
    fn new() -> Fixture {
        let (limiter, clock) = manual_limiter(RULES);
        Fixture { limiter, clock }
    }

    fn check_request(&self, request: Request<'_>, entries: &[(&str, &str)]) -> Decision {
        let descriptors = [Descriptor::new(entries)];
        poll_once(self.limiter.check_request(&Request { descriptors: &descriptors, ..request })).unwrap().unwrap()
    }

    fn check(&self, entries: &[(&str, &str)]) -> Decision {
        self.check_request(Request::default(), entries)
    }

    fn settle(
        &self,
        receipt: &Receipt,
        outcome: RequestOutcome,
        cost: Option<u64>,
    ) -> Result<SettledReceipt, SettleError> {
        poll_once(self.limiter.settle_receipt(receipt, outcome, cost, None)).unwrap()
    }

    /// How many units each rule has left.
    fn remaining(&self) -> Vec<(String, u64)> {
        let peek = self.check_request(
            Request { cost: 0, ..Request::default() },
            &[("key", "k"), ("what", "order"), ("tokens", "0")],
        );
        peek.outcomes().map(|one| (one.rule.name().to_owned(), one.reading.remaining)).collect()
    }

    fn remaining_of(&self, rule: &str) -> u64 {
        self.remaining().into_iter().find(|(name, _)| name == rule).unwrap().1
    }
}

fn changes(settled: &SettledReceipt) -> Vec<(String, CounterChange)> {
    settled.rules().map(|one| (one.rule.name().to_owned(), one.change)).collect()
}

#[test]
fn a_slot_is_released_and_an_estimate_replaced() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("tokens", "400")]);
    let receipt = decision.receipt().unwrap();
    assert_eq!((fixture.remaining_of("in-flight"), fixture.remaining_of("tokens")), (1, 600));
    let settled = fixture.settle(receipt, RequestOutcome::Ok, Some(150)).unwrap();
    let expected =
        [("in-flight".to_owned(), CounterChange::Released), ("tokens".to_owned(), CounterChange::Returned(250))];
    assert_eq!(changes(&settled), expected);
    assert_eq!((fixture.remaining_of("in-flight"), fixture.remaining_of("tokens")), (2, 850));
    assert!(!settled.is_replay() && settled.is_stored());
}

#[test]
fn a_cost_above_the_estimate_is_debited_past_the_limit() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("tokens", "900")]);
    let settled = fixture.settle(decision.receipt().unwrap(), RequestOutcome::Ok, Some(2_500)).unwrap();
    assert_eq!(changes(&settled)[1], ("tokens".to_owned(), CounterChange::Debited(1_600)));
    assert_eq!(fixture.remaining_of("tokens"), 0);
    assert!(!fixture.check(&[("key", "k"), ("tokens", "0")]).allowed(), "nothing passes beyond the limit");
}

#[test]
fn only_rules_with_a_refund_refund_a_failure() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("what", "order")]);
    assert_eq!((fixture.remaining_of("orders"), fixture.remaining_of("plain")), (4, 99));
    let settled = fixture.settle(decision.receipt().unwrap(), RequestOutcome::Failed, None).unwrap();
    let expected =
        [("in-flight".to_owned(), CounterChange::Released), ("orders".to_owned(), CounterChange::Returned(1))];
    assert_eq!(changes(&settled), expected);
    assert_eq!((fixture.remaining_of("orders"), fixture.remaining_of("plain")), (5, 99));
    let decision = fixture.check(&[("key", "k"), ("what", "order")]);
    fixture.settle(decision.receipt().unwrap(), RequestOutcome::Ok, None).unwrap();
    assert_eq!(fixture.remaining_of("orders"), 4);
}

#[test]
fn settling_is_idempotent_and_another_outcome_is_refused() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("tokens", "400")]);
    let receipt = decision.receipt().unwrap();
    let first = fixture.settle(receipt, RequestOutcome::Ok, Some(100)).unwrap();
    let left = fixture.remaining();
    fixture.check(&[("key", "k"), ("tokens", "7")]);
    let between = fixture.remaining();
    assert_ne!(left, between);
    let again = fixture.settle(receipt, RequestOutcome::Ok, Some(100)).unwrap();
    assert!(again.is_replay());
    assert_eq!(changes(&again), changes(&first));
    for (outcome, cost) in [
        (RequestOutcome::Ok, Some(101)),
        (RequestOutcome::Ok, None),
        (RequestOutcome::Failed, Some(100)),
        (RequestOutcome::Running, None),
    ] {
        assert_eq!(
            fixture.settle(receipt, outcome, cost).unwrap_err(),
            SettleError::AlreadySettled,
            "{outcome:?} {cost:?}"
        );
    }
    assert_eq!(fixture.remaining(), between, "no refused settlement changed a counter");
}

#[test]
fn a_settlement_is_final_even_if_nothing_changed() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("user", "u"), ("tokens", "400")]);
    let receipt = decision.receipt().unwrap();
    assert_eq!(changes(&fixture.settle(receipt, RequestOutcome::Running, None).unwrap()), []);
    assert_eq!(changes(&fixture.settle(receipt, RequestOutcome::Ok, None).unwrap()), []);
    assert_eq!(fixture.settle(receipt, RequestOutcome::Ok, Some(100)).unwrap_err(), SettleError::AlreadySettled);
    assert_eq!(fixture.settle(receipt, RequestOutcome::Running, None).unwrap_err(), SettleError::AlreadySettled);
    let peek = fixture.check_request(Request { cost: 0, ..Request::default() }, &[("user", "u"), ("tokens", "0")]);
    assert_eq!(peek.tightest().unwrap().reading.remaining, 600);
}

#[test]
fn a_running_request_keeps_its_slot() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k")]);
    let receipt = decision.receipt().unwrap();
    for round in 1..=10 {
        fixture.clock.set(START.after(Span::from_secs(29 * round)));
        let settled = fixture.settle(receipt, RequestOutcome::Running, None).unwrap();
        assert_eq!(changes(&settled), [("in-flight".to_owned(), CounterChange::Extended)]);
        assert_eq!(fixture.remaining_of("in-flight"), 1);
    }
    fixture.clock.set(START.after(Span::from_secs(29 * 10 + 30)));
    assert_eq!(fixture.remaining_of("in-flight"), 2, "without an extension the slot is free");
    for _ in 0..2 {
        assert!(fixture.check(&[("key", "k")]).allowed());
    }
    let settled = fixture.settle(receipt, RequestOutcome::Running, None).unwrap();
    assert_eq!(changes(&settled), [("in-flight".to_owned(), CounterChange::Lost)], "other requests hold the slots");
    let settled = fixture.settle(receipt, RequestOutcome::Ok, None).unwrap();
    assert_eq!(settled.rules().next().unwrap().reading.taken, 0);
    assert_eq!(fixture.remaining_of("in-flight"), 0, "and they still hold them");
}

#[test]
fn invalid_costs_change_nothing() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("tokens", "400")]);
    let receipt = decision.receipt().unwrap();
    let left = fixture.remaining();
    assert_eq!(fixture.settle(receipt, RequestOutcome::Running, Some(1)).unwrap_err(), SettleError::CostOfRunning);
    assert_eq!(fixture.settle(receipt, RequestOutcome::Ok, Some(1 << 53)).unwrap_err(), SettleError::CostTooLarge);
    assert_eq!(fixture.remaining(), left);
    fixture.settle(receipt, RequestOutcome::Ok, Some(400)).unwrap();
}

#[test]
fn a_receipt_is_issued_if_it_is_needed_or_requested() {
    let fixture = Fixture::new();
    let wish =
        |receipt, entries: &[(&str, &str)]| fixture.check_request(Request { receipt, ..Request::default() }, entries);
    assert!(wish(ReceiptWish::IfNeeded, &[("key", "a")]).receipt().is_some());
    assert!(wish(ReceiptWish::IfNeeded, &[("other", "a")]).receipt().is_none());
    let requested = wish(ReceiptWish::Always, &[("other", "a")]);
    let receipt = requested.receipt().unwrap();
    assert!(receipt.is_empty());
    assert_eq!(changes(&fixture.settle(receipt, RequestOutcome::Ok, Some(5)).unwrap()), []);
    // A caller that can't release takes no slot, and the decision counts the rule.
    let never = wish(ReceiptWish::Never, &[("key", "b")]);
    assert!(never.receipt().is_none() && never.allowed());
    assert_eq!((never.not_held(), never.outcomes().filter(|one| one.rule.name() == "in-flight").count()), (1, 0));
    for _ in 0..2 {
        assert!(wish(ReceiptWish::IfNeeded, &[("key", "c")]).allowed());
    }
    assert!(wish(ReceiptWish::IfNeeded, &[("key", "c")]).receipt().is_none(), "a refusal has taken nothing");
}

#[test]
fn a_repeated_idempotency_key_gets_the_same_receipt() {
    let fixture = Fixture::new();
    let once = Request { once: Some("order-1"), ..Request::default() };
    let first = fixture.check_request(once, &[("key", "k"), ("tokens", "400")]);
    let left = fixture.remaining();
    let again = fixture.check_request(once, &[("key", "k"), ("tokens", "400")]);
    assert!(matches!(again.replay(), tollgate::Replay::Again { passed: true, .. }));
    assert_eq!(again.receipt(), first.receipt());
    assert_eq!(fixture.remaining(), left);
    let other = fixture.check_request(once, &[("key", "other"), ("tokens", "400")]);
    assert_eq!(other.replay(), tollgate::Replay::First, "another caller's key");
    let conflict = fixture.check_request(once, &[("key", "k"), ("tokens", "401")]);
    assert_eq!(conflict.replay(), tollgate::Replay::Conflict);
    assert!(!conflict.allowed() && conflict.receipt().is_none());
    assert_eq!(fixture.remaining(), left);
}

/// A key that is reused after its result has expired takes units again, which are to be settled again.
#[test]
fn a_reused_idempotency_key_gets_a_new_receipt() {
    let Fixture { clock, limiter } = Fixture::new();
    let fixture = Fixture { limiter: limiter.with_once_retention(Span::from_secs(5)), clock };
    let once = Request { once: Some("order-1"), ..Request::default() };
    let first = fixture.check_request(once, &[("key", "k")]);
    fixture.settle(first.receipt().unwrap(), RequestOutcome::Ok, None).unwrap();
    fixture.clock.set(START.after(Span::from_secs(6)));
    let second = fixture.check_request(once, &[("key", "k")]);
    assert_eq!((second.replay(), fixture.remaining_of("in-flight")), (tollgate::Replay::First, 1));
    let (first, second) = (first.receipt().unwrap(), second.receipt().unwrap());
    assert_eq!(first.claim(), second.claim());
    assert!(!fixture.settle(second, RequestOutcome::Ok, None).unwrap().is_replay());
    assert_eq!(fixture.remaining_of("in-flight"), 2);
    assert!(fixture.settle(second, RequestOutcome::Ok, None).unwrap().is_replay());
}

/// By the clock of another server a receipt may be valid for slightly longer than its hold.
#[test]
fn a_settlement_is_recorded_for_longer_than_the_receipt_is_valid() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "k"), ("what", "order")]);
    let receipt = decision.receipt().unwrap();
    fixture.settle(receipt, RequestOutcome::Failed, None).unwrap();
    fixture.check(&[("key", "k"), ("what", "order")]);
    for seconds in [1, 60, 69] {
        fixture.clock.set(START.after(Span::from_secs(seconds)));
        assert!(fixture.settle(receipt, RequestOutcome::Failed, None).unwrap().is_replay(), "{seconds}");
        assert_eq!(fixture.remaining_of("orders"), 4);
    }
}

#[test]
fn only_the_keys_of_the_fleet_sign_and_open_receipts() {
    let fixture = Fixture::new();
    let decision = fixture.check(&[("key", "käy"), ("tokens", "400"), ("what", "order")]);
    let receipt = decision.receipt().unwrap();
    let start = START;
    let (old, new) = (b"an old secret of the fleet".as_slice(), b"a new secret of the fleet".as_slice());
    let old_keys = ReceiptKeys::new([old]).unwrap();
    let both = ReceiptKeys::new([new, old]).unwrap();
    let text = old_keys.sign(receipt, start);
    assert!(text.len() < 200, "{} characters: {text}", text.len());
    assert_eq!(both.open(&text, start), Ok(receipt.clone()), "all verify");
    assert_eq!(both.open_with_expiry(&text, start), Ok((receipt.clone(), start.after(receipt.hold()))));
    assert_eq!(old_keys.open(&both.sign(receipt, start), start), Err(ReceiptError::Foreign), "the first signs");
    let last = start.after(Span::from_micros(receipt.hold().as_micros() - 1));
    assert_eq!(old_keys.open(&text, last), Ok(receipt.clone()));
    assert_eq!(old_keys.open(&text, start.after(receipt.hold())), Err(ReceiptError::Expired));
    for at in 0..text.len() {
        let mut forged = text.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(old_keys.open(&forged, start).is_err(), "changed at {at}");
        assert!(old_keys.open(&text[..at], start).is_err(), "cut at {at}");
    }
    assert_eq!(ReceiptKeys::new([b"short"]).unwrap_err(), KeyError::TooShort);
    assert_eq!(ReceiptKeys::new([old; 9]).unwrap_err(), KeyError::TooMany);
    assert_eq!(ReceiptKeys::new([b""; 0]).unwrap_err(), KeyError::None);
}
