//! Adjustments of one caller's counters, in memory with a manual clock: reset, credit, debit.

use tollgate::{
    Adjustment, AdjustmentReport, ClaimId, Decision, Descriptor, Limiter, ManualClock, Reading, Request, RequestError,
    Source, Span, Store, poll_once,
};
use tollgate_core::{Claim, Settlement};

use crate::support::{ManualLimiter, START, manual_limiter, rules};

/// A rule of every algorithm for one caller, and rules that are not keyed by the caller.
const RULES: &str = "
domain: d
entity: key
rules:
  - {name: token, key: [key], limit: 10/minute, algorithm: token_bucket}
  - {name: leaky, key: [key], limit: 10/minute, algorithm: leaky_bucket}
  - {name: fixed, key: [key], limit: 10/minute, algorithm: fixed_window}
  - {name: sliding, key: [key], limit: 10/minute}
  - {name: charges_settled, key: [key], limit: 10/minute, sub_windows: 6}
  - {name: log, key: [key], limit: 10/minute, algorithm: sliding_log}
  - {name: slots, key: [key], limit: 10 concurrent, hold: 60s}
  - {name: per-endpoint, key: [key, endpoint], limit: 10/minute, algorithm: fixed_window}
  - {name: per-region, key: [region], limit: 1000/minute, algorithm: fixed_window}
  - {name: never, key: [key], limit: unlimited}
";
const COUNTED: [&str; 6] = ["token", "leaky", "fixed", "sliding", "charges_settled", "log"];

struct Fixture {
    limiter: ManualLimiter,
    clock: ManualClock,
}

impl Fixture {
    fn new() -> Fixture {
        let (limiter, clock) = manual_limiter(RULES);
        Fixture { limiter, clock }
    }

    fn at(&self, seconds: u64) {
        self.clock.set(START.after(Span::from_secs(seconds)));
    }

    fn check(&self, caller: &str, endpoint: &str, cost: u64) -> Decision {
        let entries = [("key", caller), ("endpoint", endpoint), ("region", "eu")];
        let descriptors = [Descriptor::new(&entries)];
        // Each request holds a slot of its own.
        let id = Some(ClaimId(fastrand::u128(..)));
        poll_once(self.limiter.check_request(&Request {
            descriptors: &descriptors,
            cost,
            claim: id,
            ..Request::default()
        }))
        .unwrap()
        .unwrap()
    }

    fn adjust(&self, others: &[(&str, &str)], rule: Option<&str>, adjustment: Adjustment) -> AdjustmentReport {
        let adjusted =
            poll_once(self.limiter.adjust(None, None, "a", others, rule, adjustment)).unwrap().unwrap().unwrap();
        assert!(adjusted.is_stored());
        assert_eq!((&*adjusted.domain, &*adjusted.entity), ("d", "key"));
        adjusted
    }

    /// The remaining units of each rule with a counter.
    fn remaining(&self, caller: &str, others: &[(&str, &str)]) -> Vec<(String, u64)> {
        let peeked = poll_once(self.limiter.peek(None, None, caller, others)).unwrap().unwrap().unwrap();
        peeked.counters.into_iter().map(|(rule, counter)| (rule.name, counter.reading.remaining)).collect()
    }

    fn remaining_of(&self, rule: &str, others: &[(&str, &str)]) -> u64 {
        self.remaining("a", others).into_iter().find(|(name, _)| name == rule).unwrap().1
    }
}

fn changes(adjusted: &AdjustmentReport) -> Vec<(&str, u64, u64)> {
    let counters = adjusted.counters.iter();
    counters.map(|counter| (&*counter.rule.name, counter.units, counter.reading.remaining)).collect()
}

fn left_out(adjusted: &AdjustmentReport) -> Vec<&str> {
    adjusted.left_out.iter().map(|(rule, _)| &*rule.name).collect()
}

#[test]
fn a_reset_clears_and_removes_every_counter_of_the_caller() {
    let fixture = Fixture::new();
    for caller in ["a", "b"] {
        assert!(fixture.check(caller, "/x", 9).allowed());
        assert!(fixture.check(caller, "/x", 1).allowed());
        assert!(!fixture.check(caller, "/x", 1).allowed());
    }
    let keys = fixture.limiter.store().stats().keys;
    let before = fixture.remaining("b", &[]);
    let adjusted = fixture.adjust(&[("endpoint", "/x")], None, Adjustment::Reset);
    let counted = COUNTED.map(|name| (name, 10, 10));
    assert_eq!(changes(&adjusted), [&counted[..], &[("slots", 2, 10), ("per-endpoint", 10, 10)]].concat());
    assert_eq!(left_out(&adjusted), ["per-region", "never"]);
    assert_eq!(adjusted.at, START);
    assert_eq!(adjusted.counters[7].key, ["a", "/x"]);
    assert_eq!(adjusted.counters[0].limit.amount(), 10);
    assert_eq!(fixture.limiter.store().stats().keys, keys - 8);
    assert_eq!(fixture.remaining("b", &[]), before);
    assert!(fixture.check("a", "/x", 10).allowed() && !fixture.check("b", "/x", 1).allowed());
}

#[test]
fn a_reset_of_one_rule_does_not_affect_other_rules() {
    let fixture = Fixture::new();
    fixture.check("a", "/x", 10);
    let adjusted = fixture.adjust(&[], Some("sliding"), Adjustment::Reset);
    assert_eq!((changes(&adjusted), left_out(&adjusted)), (vec![("sliding", 10, 10)], vec![]));
    for rule in COUNTED {
        assert_eq!(fixture.remaining_of(rule, &[]), if rule == "sliding" { 10 } else { 0 }, "{rule}");
    }
    assert_eq!(fixture.remaining_of("slots", &[]), 9);
    // A second reset has nothing to clear.
    assert_eq!(changes(&fixture.adjust(&[], Some("sliding"), Adjustment::Reset)), [("sliding", 0, 10)]);
}

#[test]
fn a_composite_key_is_adjusted_by_its_values() {
    let fixture = Fixture::new();
    for endpoint in ["/x", "/y"] {
        fixture.check("a", endpoint, 4);
    }
    let unknown = fixture.adjust(&[], Some("per-endpoint"), Adjustment::Reset);
    assert_eq!((changes(&unknown), left_out(&unknown)), (vec![], vec!["per-endpoint"]));
    assert!(unknown.left_out[0].1.contains("`endpoint`"), "{unknown:?}");
    let adjusted = fixture.adjust(&[("endpoint", "/x")], Some("per-endpoint"), Adjustment::Reset);
    assert_eq!(changes(&adjusted), [("per-endpoint", 4, 10)]);
    let left = ["/x", "/y"].map(|endpoint| fixture.remaining_of("per-endpoint", &[("endpoint", endpoint)]));
    assert_eq!(left, [10, 6]);
    // Another attribute may name the caller.
    let by_region = poll_once(fixture.limiter.adjust(None, Some("region"), "eu", &[], None, Adjustment::Reset));
    let by_region = by_region.unwrap().unwrap().unwrap();
    assert_eq!((changes(&by_region), &*by_region.entity), (vec![("per-region", 8, 1_000)], "region"));
}

#[test]
fn credits_and_debits_are_exact() {
    let fixture = Fixture::new();
    fixture.check("a", "/x", 6);
    let debited = fixture.adjust(&[], None, Adjustment::Debit(3));
    assert_eq!(changes(&debited), COUNTED.map(|rule| (rule, 3, 1)));
    assert_eq!(left_out(&debited), ["per-endpoint", "per-region", "never", "slots"]);
    let past = fixture.adjust(&[], None, Adjustment::Debit(5));
    assert_eq!(changes(&past), COUNTED.map(|rule| (rule, 5, 0)));
    assert!(past.counters.iter().all(|counter| counter.reading.admits));
    assert!(!fixture.check("a", "/x", 1).allowed());
    let credited = fixture.adjust(&[], None, Adjustment::Credit(6));
    assert_eq!(changes(&credited), COUNTED.map(|rule| (rule, 6, 2)));
    assert_eq!(left_out(&credited), ["per-endpoint", "per-region", "never", "slots"]);
    assert_eq!(fixture.remaining_of("slots", &[]), 9);
    // A credit gives back no more than was taken.
    let all = fixture.adjust(&[], Some("fixed"), Adjustment::Credit(u64::MAX));
    assert_eq!(changes(&all), [("fixed", 8, 10)]);
    assert_eq!(changes(&fixture.adjust(&[], Some("fixed"), Adjustment::Debit(0))), [("fixed", 0, 10)]);
    assert_eq!(changes(&fixture.adjust(&[], Some("token"), Adjustment::Credit(0))), [("token", 0, 2)]);
}

#[test]
fn a_credit_gives_back_units_that_still_count() {
    let fixture = Fixture::new();
    fixture.check("a", "/x", 6);
    fixture.at(30);
    for rule in ["fixed", "sliding", "charges_settled", "log"] {
        assert_eq!(changes(&fixture.adjust(&[], Some(rule), Adjustment::Credit(2))), [(rule, 2, 6)]);
    }
    fixture.at(90);
    // After a minute and a half the buckets are full; the fixed window, the sub-windows and the log are over; half of
    // the rest is carried over.
    assert_eq!(
        fixture.remaining("a", &[])[..6].iter().map(|(_, left)| *left).collect::<Vec<_>>(),
        [10, 10, 10, 8, 10, 10]
    );
    assert_eq!(changes(&fixture.adjust(&[], Some("sliding"), Adjustment::Credit(1))), [("sliding", 1, 9)]);
    fixture.check("a", "/x", 4);
    assert_eq!(changes(&fixture.adjust(&[], Some("sliding"), Adjustment::Credit(9))), [("sliding", 5, 10)]);
    assert_eq!(changes(&fixture.adjust(&[], Some("sliding"), Adjustment::Credit(1))), [("sliding", 0, 10)]);
}

#[test]
fn unknown_rules_and_domains_and_long_attributes_are_errors() {
    let fixture = Fixture::new();
    let adjust = |domain, entity, others: &[(&str, &str)], rule| {
        poll_once(fixture.limiter.adjust(domain, entity, "a", others, rule, Adjustment::Reset)).unwrap()
    };
    let unknown = adjust(None, None, &[], Some("per-ky")).unwrap_err();
    assert_eq!(unknown, RequestError::UnknownRule("per-ky".into()));
    assert!(unknown.to_string().contains("per-ky"), "{unknown}");
    assert_eq!(adjust(Some("x"), None, &[], None).unwrap_err(), RequestError::UnknownDomain);
    let long = "v".repeat(100_000);
    assert_eq!(adjust(None, None, &[("endpoint", &*long)], None).unwrap_err(), RequestError::TooLong);
    let (without_entity, _) = manual_limiter("domain: d\nrules:\n  - {name: r, key: [k], limit: 1/m}\n");
    assert!(
        poll_once(without_entity.adjust(None, None, "a", &[], None, Adjustment::Reset)).unwrap().unwrap().is_none()
    );
}

/// A store that is always unavailable.
struct UnavailableStore;

impl Store for UnavailableStore {
    async fn settle_into(&self, _claim: &Claim<'_>, _settlement: &mut Settlement) {
        panic!("the store is unavailable");
    }
}

#[test]
fn an_adjustment_reports_an_unavailable_store() {
    let limiter = Limiter::new(rules(RULES, 1), UnavailableStore);
    for adjustment in [Adjustment::Reset, Adjustment::Credit(1), Adjustment::Debit(1)] {
        let adjusted = poll_once(limiter.adjust(None, None, "a", &[], None, adjustment)).unwrap().unwrap().unwrap();
        assert!(!adjusted.is_stored() && !adjusted.counters.is_empty());
        for counter in &adjusted.counters {
            let Reading { admits, source, .. } = counter.reading;
            assert_eq!((counter.units, source), (0, Source::Assumed), "{adjustment:?}");
            assert!(adjustment != Adjustment::Reset || !admits);
        }
    }
}
