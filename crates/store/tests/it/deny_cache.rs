//! The deny cache over the reference.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Shortcuts, Source, Span, Timestamp, Value, Verdict, Wait,
};
use tollgate_store::conformance::{Subject, block_on, reference::Reference};
use tollgate_store::deny_cache::MAX_DENIALS;
use tollgate_store::{DenyCache, ManualClock, MemoryConfig, MemoryStore, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The reference with a count of the claims that reached it.
#[derive(Default)]
struct Counted {
    store: Reference,
    claims: AtomicU64,
}

impl Store for Counted {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.store.settle_into(claim, settlement).await;
    }
}

struct World {
    store: DenyCache<Counted, ManualClock>,
    clock: ManualClock,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::default();
        let world = World { store: DenyCache::with_clock(Counted::default(), clock.clone()), clock };
        world.at(0);
        world
    }

    /// Milliseconds after the start.
    fn at(&self, millis: u64) {
        self.set(START.after(Span::from_micros(millis * 1_000)));
    }

    fn set(&self, now: Timestamp) {
        self.clock.set(now);
        self.store.inner().store.set_now(now);
    }

    /// Settles a claim. Also returns whether the store was called.
    fn settle<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> (Settlement, bool) {
        let claim = Claim { id: ClaimId(1), charges: charges.into_iter().collect(), once: None, timeout: None };
        self.settle_claim(&claim)
    }

    fn settle_claim(&self, claim: &Claim<'_>) -> (Settlement, bool) {
        let claims = || self.store.inner().claims.load(Ordering::Relaxed);
        let before = claims();
        let settlement = block_on(self.store.settle(claim));
        (settlement, claims() > before)
    }
}

struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Rule {
    fn new(amount: u64, seconds: u64, algorithm: Algorithm) -> Rule {
        let period = Period::fixed(Span::from_secs(seconds)).unwrap();
        let limit = Limit::new(amount, period, algorithm).unwrap();
        Rule { scope: Scope::new("d", "rule", algorithm, limit.period(), Home::Caller(0)), limit }
    }

    fn take<'a>(&'a self, value: &'a str, units: u64) -> Charge<'a> {
        Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(value)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        }
    }
}

/// Ten in a minute.
fn ten() -> Rule {
    Rule::new(10, 60, Algorithm::FixedWindow)
}

/// A cost that falls by one each time is never covered by the denial before it.
#[test]
fn falling_costs_are_answered_from_memory_too() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::Bucket { burst: 1_000, paced: false }] {
        let (world, rule) = (World::new(), Rule::new(1_000, 3_600, algorithm));
        world.settle([rule.take("x", 990)]);
        let calls = |from: u64, to: u64| {
            let requests = (to..from).rev().map(|units| {
                let (settlement, was_called) = world.settle([rule.take("x", units)]);
                assert!(!settlement.readings[0].admits, "{units}");
                // Who waits as long as the response says finds room for fewer units, too.
                assert!(matches!(settlement.readings[0].wait, Wait::For(_)), "{units}: {settlement:?}");
                u64::from(was_called)
            });
            requests.sum::<u64>()
        };
        assert_eq!(calls(900, 500), 9, "{algorithm:?}");
        // What remained may have become more since.
        world.at(50);
        assert_eq!(calls(500, 100), 1, "{algorithm:?}");
        world.at(100);
        assert_eq!(calls(100, 11), 1, "{algorithm:?}");
        // What fits is not refused.
        let (settlement, was_called) = world.settle([rule.take("x", 10)]);
        assert!(was_called && settlement.readings[0].admits, "{algorithm:?}");
    }
}

#[test]
fn a_refusal_is_answered_from_memory_for_a_second() {
    let (world, rule) = (World::new(), ten());
    world.at(30_000);
    world.settle([rule.take("x", 9)]);
    let (refused, _) = world.settle([rule.take("x", 2)]);
    assert_eq!(refused.readings[0].wait, Wait::For(Span::from_secs(30)));
    for millis in [0, 1, 500, 999] {
        world.at(30_000 + millis);
        let (settlement, was_called) = world.settle([rule.take("y", 1), rule.take("x", 2)]);
        assert!(!was_called, "after {millis} ms");
        assert_eq!(
            (settlement.replay, settlement.at),
            (Replay::First, START.after(Span::from_micros((30_000 + millis) * 1_000)))
        );
        let [other, reading] = settlement.readings[..] else { panic!() };
        assert_eq!((reading.admits, reading.taken, reading.remaining, reading.source), (false, 0, 1, Source::Cache));
        let left = Span::from_micros((30_000 - millis) * 1_000);
        assert_eq!((reading.wait, reading.reset_after), (Wait::For(left), left));
        assert_eq!((other.admits, other.taken, other.remaining, other.source), (true, 0, 10, Source::Cache));
    }
    world.at(31_000);
    assert!(world.settle([rule.take("x", 2)]).1, "after a second the store is called again");
    assert_eq!(world.store.hits(), 4);
}

#[test]
fn who_makes_room_in_a_counter_has_its_refusal_forgotten() {
    for ask in [Ask::Reset, Ask::Credit, Ask::Return { taken_at: START }] {
        let (world, rule) = (World::new(), ten());
        world.settle([rule.take("x", 10), rule.take("y", 10)]);
        for value in ["x", "y"] {
            assert!(!world.settle([rule.take(value, 1)]).0.readings[0].admits);
        }
        assert!(!world.settle([rule.take("x", 1)]).1, "{ask:?}: it is remembered");
        let (settlement, was_called) = world.settle([Charge { ask, ..rule.take("x", 5) }]);
        assert!(was_called && settlement.readings[0].taken > 0, "{settlement:?}");
        assert!(world.settle([rule.take("x", 1)]).0.readings[0].admits, "{ask:?}");
        assert!(!world.settle([rule.take("y", 1)]).1, "{ask:?}: another caller's refusal is remembered on");
    }
}

#[test]
fn purged_refusals_are_those_of_the_selected_keys() {
    let (world, rule) = (World::new(), ten());
    let other =
        Rule { scope: Scope::new("d", "other", Algorithm::FixedWindow, rule.limit.period(), Home::Caller(0)), ..ten() };
    let long = "x".repeat(300);
    let refuse = || {
        for charge in [rule.take("x", 11), rule.take("y", 11), other.take("x", 11), rule.take(&long, 11)] {
            world.settle([Charge { units: 10, ..charge.clone() }]);
            assert!(!world.settle([Charge { units: 1, ..charge }]).0.readings[0].admits);
        }
    };
    // Whether the store is called for x and y of the rule, and x of the other.
    let called = || [rule.take("x", 1), rule.take("y", 1), other.take("x", 1)].map(|charge| world.settle([charge]).1);
    refuse();
    assert_eq!(called(), [false; 3]);
    // Those of long values are dropped with any.
    assert_eq!(world.store.purge(|key| key.values() == [Value::Text("x")]), 3);
    assert_eq!(called(), [true, false, true]);
    refuse();
    assert_eq!(world.store.purge(|key| key.scope().rule() == "rule"), 3);
    assert_eq!(called(), [true, true, false]);
    refuse();
    world.at(2_000);
    assert_eq!(world.store.purge(|_| true), 0, "they are over");
    assert_eq!(world.store.denials(), 0);
}

#[test]
fn it_holds_no_longer_than_its_wait() {
    let (world, rule) = (World::new(), ten());
    world.at(59_900);
    world.settle([rule.take("x", 10)]);
    assert!(!world.settle([rule.take("x", 1)]).0.readings[0].admits);
    world.at(59_999);
    assert!(!world.settle([rule.take("x", 1)]).1);
    world.at(60_000);
    let (settlement, was_called) = world.settle([rule.take("x", 1)]);
    assert!(was_called && settlement.readings[0].admits);
}

#[test]
fn it_holds_for_as_many_units_and_more() {
    let (world, rule) = (World::new(), ten());
    world.settle([rule.take("x", 5)]);
    assert!(!world.settle([rule.take("x", 8)]).0.readings[0].admits);
    for (units, expected) in [(8, false), (9, false), (u64::MAX, false), (0, true), (7, true), (7, false), (3, true)] {
        let (settlement, was_called) = world.settle([rule.take("x", units)]);
        assert_eq!(was_called, expected, "{units} units");
        assert_eq!(settlement.readings[0].admits, units <= 5, "{units} units");
    }
    // Both are refused for their sum, which says nothing about one of them.
    assert!(!world.settle([rule.take("y", 6), rule.take("y", 6)]).0.readings[0].admits);
    assert!(world.settle([rule.take("y", 6)]).0.readings[0].admits);
}

#[test]
fn another_limit_is_another_answer() {
    let (world, rule) = (World::new(), ten());
    world.settle([rule.take("x", 10)]);
    world.settle([rule.take("x", 1)]);
    let more = Rule { limit: rule.limit.with_amount(20), ..ten() };
    let (settlement, was_called) = world.settle([more.take("x", 1)]);
    assert!(was_called && settlement.readings[0].admits);
    let bucket = |burst| Rule::new(10, 60, Algorithm::Bucket { burst, paced: false });
    let (small, large) = (bucket(10), bucket(20));
    world.settle([small.take("x", 10)]);
    world.settle([small.take("x", 1)]);
    assert!(!world.settle([small.take("x", 1)]).1);
    let (settlement, was_called) = world.settle([large.take("x", 1)]);
    assert!(was_called && settlement.readings[0].admits);
}

#[test]
fn what_may_be_given_back_and_what_is_no_refusal_is_not_remembered() {
    let (holds, rule) = (Rule::new(1, 60, Algorithm::Concurrency), ten());
    let other = |change: fn(&mut Charge<'_>)| {
        let mut charge = rule.take("x", 1);
        change(&mut charge);
        charge
    };
    for charge in [
        other(|charge| charge.shortcuts = Shortcuts::None),
        other(|charge| charge.mode = Mode::AnyOf),
        other(|charge| charge.mode = Mode::Shadow),
        // It never fits, so there is no wait.
        other(|charge| charge.units = 11),
    ] {
        let world = World::new();
        world.settle([rule.take("x", 10)]);
        assert!(!world.settle([charge.clone()]).0.readings[0].admits, "{charge:?}");
        assert_eq!(world.store.denials(), 0, "{charge:?}");
        // Nor do the cached denials of others answer it.
        world.settle([rule.take("x", 1)]);
        assert_eq!(world.settle([charge.clone()]).1, charge.units == 1, "{charge:?}");
    }
    // A counter past its limit refuses even a peek. Such a refusal is not cached.
    let world = World::new();
    world.settle([Charge { mode: Mode::Soft, ..rule.take("x", 11) }]);
    assert!(!world.settle([rule.take("x", 0)]).0.readings[0].admits);
    assert_eq!(world.store.denials(), 0);
    let world = World::new();
    let hold = |id| Claim { id: ClaimId(id), charges: smallvec![holds.take("x", 1)], once: None, timeout: None };
    assert!(world.settle_claim(&hold(1)).0.readings[0].admits);
    for id in [2, 3] {
        let (settlement, was_called) = world.settle_claim(&hold(id));
        assert!(was_called && !settlement.readings[0].admits);
    }
    assert_eq!(world.store.denials(), 0);
}

#[test]
fn only_plain_claims_are_answered() {
    let (world, rule) = (World::new(), ten());
    world.settle([rule.take("x", 10)]);
    let once = |name| Claim {
        id: ClaimId(1),
        charges: smallvec![rule.take("x", 1)],
        once: Some(Once { key: rule.take(name, 0).key, body: 1, terms: 0, keep: Span::from_secs(60) }),
        timeout: None,
    };
    world.settle_claim(&once("n1"));
    assert_eq!(world.store.denials(), 0, "what is settled once has a record of its own");
    world.settle([rule.take("x", 1)]);
    assert!(!world.settle([rule.take("x", 1)]).1);
    assert!(world.settle_claim(&once("n2")).1);
    for ask in [Ask::UpTo, Ask::Regardless, Ask::Return { taken_at: START }] {
        let fact = Charge { ask, ..rule.take("y", 1) };
        assert!(world.settle([rule.take("x", 1), fact]).1, "{ask:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_last_longer() {
    let (world, rule) = (World::new(), ten());
    world.settle([rule.take("x", 10)]);
    world.settle([rule.take("x", 1)]);
    world.set(START.before(Span::from_secs(3_600)));
    assert!(world.settle([rule.take("x", 1)]).1);
}

#[test]
fn it_is_bounded_and_the_oldest_go() {
    let clock = ManualClock::at(START);
    let memory: MemoryStore<_> =
        MemoryConfig { max_keys: 300_000, ..MemoryConfig::default() }.build_with(clock.clone());
    let store = DenyCache::with_clock(memory, clock.clone());
    let rule = Rule::new(1, 60, Algorithm::FixedWindow);
    let refuse = |key: usize| {
        let name = key.to_string();
        for _ in 0..2 {
            let charges = smallvec![rule.take(&name, 1)];
            block_on(store.settle(&Claim { id: ClaimId(1), charges, once: None, timeout: None }));
        }
    };
    (0..MAX_DENIALS + 20_000).for_each(refuse);
    assert!((MAX_DENIALS * 9 / 10..=MAX_DENIALS).contains(&store.denials()), "{}", store.denials());
    let answered = store.hits();
    refuse(0);
    refuse(MAX_DENIALS + 19_999);
    assert_eq!(store.hits() - answered, 1 + 2, "the oldest was sent again once, the newest is cached");
    clock.set(START.after(Span::from_secs(2)));
    (0..1_000).map(|key| MAX_DENIALS + 20_000 + key).for_each(refuse);
    assert_eq!(store.denials(), 1_000, "what is over makes room");
}

/// A step: milliseconds that pass, and charges by rule, value and units.
type Step = (u64, Vec<(usize, usize, u64)>);

fn steps() -> impl Strategy<Value = Step> {
    let passes = prop_oneof![4 => 0u64..50, 2 => 0u64..1_500, 1 => 0u64..20_000];
    (passes, prop::collection::vec((0usize..6, 0usize..3, 0u64..5), 1..4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Compared with the same store without a cache: both refuse and admit the same claims.
    #[test]
    fn it_decides_like_the_store_within(history in prop::collection::vec(steps(), 1..80)) {
        let rules = [
            Algorithm::Bucket { burst: 6, paced: false },
            Algorithm::Bucket { burst: 9, paced: true },
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow { sub_windows: 1 },
            Algorithm::SlidingWindow { sub_windows: 5 },
            Algorithm::SlidingLog,
        ].map(|algorithm| Rule::new(6, 10, algorithm));
        let (world, plain) = (World::new(), Reference::default());
        let mut now = START;
        for (passes, charges) in &history {
            now = now.after(Span::from_micros(passes * 1_000));
            world.set(now);
            plain.set_now(now);
            let charge = |(rule, value, units): &(usize, usize, u64)| rules[*rule].take(["x", "y", "z"][*value], *units);
            let claim = Claim { id: ClaimId(1), charges: charges.iter().map(charge).collect(), once: None, timeout: None };
            let expected = block_on(plain.settle(&claim));
            let (actual, was_called) = world.settle_claim(&claim);
            let (should, does) = (Verdict::reach(&claim, &expected), Verdict::reach(&claim, &actual));
            prop_assert_eq!(should.allowed, does.allowed, "{:?} at {:?}", charges, now);
            if was_called {
                prop_assert_eq!(&actual, &expected);
            } else {
                for (reading, truth) in actual.readings.iter().zip(&expected.readings) {
                    prop_assert_eq!(reading.taken, 0);
                    if !reading.admits {
                        prop_assert!(!truth.admits, "refused although there is room: {:?}", charges);
                        prop_assert!(reading.wait <= truth.wait, "the wait is too long");
                        prop_assert!(reading.wait > Wait::None);
                    }
                }
            }
        }
    }
}
