//! Adjustments of one caller's counters, in memory with a manual clock: reset, credit, debit.

use tollgate::{
    Adjustment, AdjustmentReport, ClaimId, Decision, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore,
    Reading, Request, RequestError, Ruleset, Source, Span, Store, Timestamp, poll_once,
};
use tollgate_core::{Claim, Settlement};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

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

struct World {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

impl World {
    fn new() -> World {
        let (rules, _) = Ruleset::from_text(RULES, 1).unwrap();
        let clock = ManualClock::at(START);
        World { limiter: Limiter::new(rules, MemoryConfig::default().build_with(clock.clone())), clock }
    }

    fn at(&self, seconds: u64) {
        self.clock.set(START.after(Span::from_secs(seconds)));
    }

    fn check(&self, caller: &str, endpoint: &str, cost: u64) -> Decision {
        let entries = [("key", caller), ("endpoint", endpoint), ("region", "eu")];
        let descriptors = [Descriptor::new(&entries)];
        // Each request is one in flight.
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

    /// What is left under each rule that counts.
    fn left(&self, caller: &str, others: &[(&str, &str)]) -> Vec<(String, u64)> {
        let peeked = poll_once(self.limiter.peek(None, None, caller, others)).unwrap().unwrap().unwrap();
        peeked.counters.into_iter().map(|(rule, counter)| (rule.name, counter.reading.remaining)).collect()
    }

    fn left_of(&self, rule: &str, others: &[(&str, &str)]) -> u64 {
        self.left("a", others).into_iter().find(|(name, _)| name == rule).unwrap().1
    }
}

fn moved(adjusted: &AdjustmentReport) -> Vec<(&str, u64, u64)> {
    let counters = adjusted.counters.iter();
    counters.map(|counter| (&*counter.rule.name, counter.units, counter.reading.remaining)).collect()
}

fn left_out(adjusted: &AdjustmentReport) -> Vec<&str> {
    adjusted.left_out.iter().map(|(rule, _)| &*rule.name).collect()
}

#[test]
fn every_counter_of_a_caller_starts_afresh_and_nothing_is_left_of_it() {
    let world = World::new();
    for caller in ["a", "b"] {
        assert!(world.check(caller, "/x", 9).allowed());
        assert!(world.check(caller, "/x", 1).allowed());
        assert!(!world.check(caller, "/x", 1).allowed());
    }
    let keys = world.limiter.store().stats().keys;
    let before = world.left("b", &[]);
    let adjusted = world.adjust(&[("endpoint", "/x")], None, Adjustment::Reset);
    let counted = COUNTED.map(|name| (name, 10, 10));
    assert_eq!(moved(&adjusted), [&counted[..], &[("slots", 2, 10), ("per-endpoint", 10, 10)]].concat());
    assert_eq!(left_out(&adjusted), ["per-region", "never"]);
    assert_eq!(adjusted.at, START);
    assert_eq!(adjusted.counters[7].key, ["a", "/x"]);
    assert_eq!(adjusted.counters[0].limit.amount(), 10);
    assert_eq!(world.limiter.store().stats().keys, keys - 8);
    assert_eq!(world.left("b", &[]), before);
    assert!(world.check("a", "/x", 10).allowed() && !world.check("b", "/x", 1).allowed());
}

#[test]
fn a_reset_of_one_rule_leaves_the_others() {
    let world = World::new();
    world.check("a", "/x", 10);
    let adjusted = world.adjust(&[], Some("sliding"), Adjustment::Reset);
    assert_eq!((moved(&adjusted), left_out(&adjusted)), (vec![("sliding", 10, 10)], vec![]));
    for rule in COUNTED {
        assert_eq!(world.left_of(rule, &[]), if rule == "sliding" { 10 } else { 0 }, "{rule}");
    }
    assert_eq!(world.left_of("slots", &[]), 9);
    // A second reset has nothing to clear.
    assert_eq!(moved(&world.adjust(&[], Some("sliding"), Adjustment::Reset)), [("sliding", 0, 10)]);
}

#[test]
fn composite_keys_are_reached_by_their_values() {
    let world = World::new();
    for endpoint in ["/x", "/y"] {
        world.check("a", endpoint, 4);
    }
    let unknown = world.adjust(&[], Some("per-endpoint"), Adjustment::Reset);
    assert_eq!((moved(&unknown), left_out(&unknown)), (vec![], vec!["per-endpoint"]));
    assert!(unknown.left_out[0].1.contains("`endpoint`"), "{unknown:?}");
    let adjusted = world.adjust(&[("endpoint", "/x")], Some("per-endpoint"), Adjustment::Reset);
    assert_eq!(moved(&adjusted), [("per-endpoint", 4, 10)]);
    let left = ["/x", "/y"].map(|endpoint| world.left_of("per-endpoint", &[("endpoint", endpoint)]));
    assert_eq!(left, [10, 6]);
    // Another attribute may name the caller.
    let by_region = poll_once(world.limiter.adjust(None, Some("region"), "eu", &[], None, Adjustment::Reset));
    let by_region = by_region.unwrap().unwrap().unwrap();
    assert_eq!((moved(&by_region), &*by_region.entity), (vec![("per-region", 8, 1_000)], "region"));
}

#[test]
fn credits_and_debits_are_exact() {
    let world = World::new();
    world.check("a", "/x", 6);
    let debited = world.adjust(&[], None, Adjustment::Debit(3));
    assert_eq!(moved(&debited), COUNTED.map(|rule| (rule, 3, 1)));
    assert_eq!(left_out(&debited), ["per-endpoint", "per-region", "never", "slots"]);
    let past = world.adjust(&[], None, Adjustment::Debit(5));
    assert_eq!(moved(&past), COUNTED.map(|rule| (rule, 5, 0)));
    assert!(past.counters.iter().all(|counter| counter.reading.admits));
    assert!(!world.check("a", "/x", 1).allowed());
    let credited = world.adjust(&[], None, Adjustment::Credit(6));
    assert_eq!(moved(&credited), COUNTED.map(|rule| (rule, 6, 2)));
    assert_eq!(left_out(&credited), ["per-endpoint", "per-region", "never", "slots"]);
    assert_eq!(world.left_of("slots", &[]), 9);
    // A credit gives back no more than was taken.
    let all = world.adjust(&[], Some("fixed"), Adjustment::Credit(u64::MAX));
    assert_eq!(moved(&all), [("fixed", 8, 10)]);
    assert_eq!(moved(&world.adjust(&[], Some("fixed"), Adjustment::Debit(0))), [("fixed", 0, 10)]);
    assert_eq!(moved(&world.adjust(&[], Some("token"), Adjustment::Credit(0))), [("token", 0, 2)]);
}

#[test]
fn a_credit_gives_back_what_still_counts_whenever_it_was_taken() {
    let world = World::new();
    world.check("a", "/x", 6);
    world.at(30);
    for rule in ["fixed", "sliding", "charges_settled", "log"] {
        assert_eq!(moved(&world.adjust(&[], Some(rule), Adjustment::Credit(2))), [(rule, 2, 6)]);
    }
    world.at(90);
    // After a minute and a half the buckets are full; the fixed window, the sub-windows and the log are over; half of
    // the rest is carried over.
    assert_eq!(world.left("a", &[])[..6].iter().map(|(_, left)| *left).collect::<Vec<_>>(), [10, 10, 10, 8, 10, 10]);
    assert_eq!(moved(&world.adjust(&[], Some("sliding"), Adjustment::Credit(1))), [("sliding", 1, 9)]);
    world.check("a", "/x", 4);
    assert_eq!(moved(&world.adjust(&[], Some("sliding"), Adjustment::Credit(9))), [("sliding", 5, 10)]);
    assert_eq!(moved(&world.adjust(&[], Some("sliding"), Adjustment::Credit(1))), [("sliding", 0, 10)]);
}

#[test]
fn what_can_not_be_meant_is_an_error() {
    let world = World::new();
    let adjust = |domain, entity, others: &[(&str, &str)], rule| {
        poll_once(world.limiter.adjust(domain, entity, "a", others, rule, Adjustment::Reset)).unwrap()
    };
    let unknown = adjust(None, None, &[], Some("per-ky")).unwrap_err();
    assert_eq!(unknown, RequestError::UnknownRule("per-ky".into()));
    assert!(unknown.to_string().contains("per-ky"), "{unknown}");
    assert_eq!(adjust(Some("x"), None, &[], None).unwrap_err(), RequestError::UnknownDomain);
    let long = "v".repeat(100_000);
    assert_eq!(adjust(None, None, &[("endpoint", &*long)], None).unwrap_err(), RequestError::TooLong);
    let (rules, _) = Ruleset::from_text("domain: d\nrules:\n  - {name: r, key: [k], limit: 1/m}\n", 1).unwrap();
    let nameless = Limiter::new(rules, MemoryConfig::default().build());
    assert!(poll_once(nameless.adjust(None, None, "a", &[], None, Adjustment::Reset)).unwrap().unwrap().is_none());
}

/// A store that is always unavailable.
struct Away;

impl Store for Away {
    async fn settle_into(&self, _claim: &Claim<'_>, _settlement: &mut Settlement) {
        panic!("the store is not there");
    }
}

#[test]
fn a_store_that_is_not_there_has_changed_nothing_and_says_so() {
    let (rules, _) = Ruleset::from_text(RULES, 1).unwrap();
    let limiter = Limiter::new(rules, Away);
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
