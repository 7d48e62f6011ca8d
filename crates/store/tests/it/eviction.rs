//! The in-memory store when callers make up keys: which counters stay, and what happens to keys without a counter.

use std::collections::HashMap;

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Source, Span, Timestamp, Value, Wait,
};
use tollgate_store::conformance::block_on;
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const FIXED: Algorithm = Algorithm::FixedWindow;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

struct Rule {
    scope: Scope,
    limit: Limit,
    on_failure: OnFailure,
}

impl Rule {
    fn new(name: &str, amount: u64, seconds: u64, algorithm: Algorithm, on_failure: OnFailure) -> Rule {
        let period = Period::fixed(Span::from_secs(seconds)).unwrap();
        let limit = Limit::new(amount, period, algorithm).unwrap();
        let scope = Scope::new("d", name, limit.algorithm(), limit.period(), Home::Caller(0));
        Rule { scope, limit, on_failure }
    }

    /// 1,000 in a day for anybody who makes up a key.
    fn open() -> Rule {
        Rule::new("open", 1_000, DAY, Algorithm::Bucket { burst: 1_000, paced: false }, OnFailure::Local)
    }

    /// One rule for each type of state.
    fn kinds(amount: u64, on_failure: OnFailure) -> [Rule; 6] {
        let kinds = [
            Algorithm::Bucket { burst: amount, paced: false },
            FIXED,
            Algorithm::SlidingWindow { sub_windows: 1 },
            Algorithm::SlidingWindow { sub_windows: 10 },
            Algorithm::SlidingLog,
            Algorithm::Concurrency,
        ];
        kinds.map(|algorithm| Rule::new("kind", amount, HOUR, algorithm, on_failure))
    }

    fn charge<'a>(&'a self, caller: &'a str, ask: Ask, units: u64) -> Charge<'a> {
        let (key, mode) = (Key::new(&self.scope, smallvec![Value::Text(caller)]), Mode::Enforce);
        Charge {
            key,
            limit: &self.limit,
            ask,
            units,
            mode,
            on_failure: self.on_failure,
            shortcuts: Shortcuts::Refusals,
        }
    }

    fn take(&self, store: &impl Store, caller: &str, units: u64) -> Reading {
        settle(store, fastrand::u128(..), [self.charge(caller, Ask::Exactly, units)]).readings[0]
    }

    fn used(&self, store: &impl Store, caller: &str) -> u64 {
        self.limit.amount() - self.take(store, caller, 0).remaining
    }

    /// Takes one unit for each of a number of new keys.
    fn flood(&self, store: &impl Store, name: &str, keys: usize) -> usize {
        (0..keys).filter(|key| self.take(store, &format!("{name}-{key}"), 1).admits).count()
    }
}

fn settle<'a>(store: &impl Store, id: u128, charges: impl IntoIterator<Item = Charge<'a>>) -> Settlement {
    let charges = charges.into_iter().collect();
    block_on(store.settle(&Claim { id: ClaimId(id), charges, once: None, timeout: None }))
}

fn store(max_keys: usize) -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::at(START);
    (MemoryConfig { max_keys, grace: Span::ZERO, ..MemoryConfig::default() }.build_with(clock.clone()), clock)
}

#[test]
fn what_refuses_is_not_forgotten_in_a_flood_of_new_keys() {
    // In one shard and in several.
    for max_keys in [500, 8_192] {
        let (store, _) = store(max_keys);
        let login = Rule::new("login", 2, HOUR, FIXED, OnFailure::Deny);
        let code = Rule::new("code", 10, MINUTE, FIXED, OnFailure::Local);
        let tokens = Rule::new("tokens", 100, MINUTE, FIXED, OnFailure::Local);
        let slots = Rule::new("slots", 5, MINUTE, Algorithm::Concurrency, OnFailure::Local);
        let callers = ["ada", "bob", "eve"];
        for caller in callers {
            assert!([1, 1].map(|units| login.take(&store, caller, units).admits) == [true; 2]);
            assert!(code.take(&store, caller, 10).admits);
            // Not used up, but without room for another charge like the last one.
            assert!([30; 3].map(|units| tokens.take(&store, caller, units).admits) == [true; 3]);
            // A single hold, which does not refuse yet.
            assert!(slots.take(&store, caller, 1).admits);
        }
        assert_eq!(Rule::open().flood(&store, "open", 5 * max_keys), 5 * max_keys);
        let stats = store.stats();
        assert!(stats.evicted as usize >= 3 * max_keys && stats.keys <= max_keys + 8, "{stats:?}");
        for caller in callers {
            assert!(!login.take(&store, caller, 1).admits, "{max_keys}: {caller} may log in again");
            assert!(!code.take(&store, caller, 1).admits, "{max_keys}: {caller}");
            assert!(!tokens.take(&store, caller, 30).admits, "{max_keys}: {caller}");
            assert_eq!(slots.used(&store, caller), 1, "{max_keys}: {caller}");
        }
        assert_eq!((stats.coarse, stats.uncounted), (0, 0), "there was room for every key");
    }
}

/// All counters of a rule are in the flood: those with the most room go.
#[test]
fn of_one_rule_the_counters_with_the_most_room_go() {
    let (store, _) = store(1_000);
    let open = Rule::open();
    for caller in 0..100 {
        open.take(&store, &format!("busy-{caller}"), 500);
        open.take(&store, &format!("full-{caller}"), 1_000);
    }
    open.flood(&store, "open", 10_000);
    for caller in 0..100 {
        assert_eq!(open.used(&store, &format!("busy-{caller}")), 500);
        assert_eq!(open.used(&store, &format!("full-{caller}")), 1_000);
    }
}

#[test]
fn each_rule_has_its_guarantee() {
    const MOST: usize = 1_000;
    let (store, _) = store(MOST);
    let (open, other) = (Rule::open(), Rule::new("other", 10, HOUR, FIXED, OnFailure::Local));
    open.flood(&store, "before", 2 * MOST);
    // A quarter: half of the store for two rules.
    let guarantee = MOST / 4;
    other.flood(&store, "other", guarantee);
    open.flood(&store, "after", 5 * MOST);
    for key in 0..guarantee {
        assert_eq!(other.used(&store, &format!("other-{key}")), 1, "key {key} of {guarantee} is gone");
    }
    assert!(store.stats().keys <= MOST);
}

/// A rule can take what another has beyond its share, and not more.
#[test]
fn a_rule_grows_to_its_share_at_the_expense_of_larger_ones() {
    const MOST: usize = 1_000;
    let clock = ManualClock::at(START);
    let config = MemoryConfig { max_keys: MOST, rule_share_bps: 6_000, grace: Span::ZERO, ..MemoryConfig::default() };
    let store = config.build_with(clock);
    let (open, other) = (Rule::open(), Rule::new("other", 10, HOUR, FIXED, OnFailure::Local));
    open.flood(&store, "open", MOST);
    other.flood(&store, "other", 5 * MOST);
    let left = (0..MOST).filter(|key| open.used(&store, &format!("open-{key}")) == 1).count();
    assert_eq!(left, 600);
}

#[test]
fn new_keys_share_one_counter_if_all_counters_of_the_rule_refuse() {
    const MOST: usize = 200;
    for once in Rule::kinds(1, OnFailure::Local) {
        let (store, _) = store(MOST);
        let case = format!("{:?}", once.limit.algorithm());
        assert_eq!(once.flood(&store, "known", MOST), MOST, "{case}");
        let reading = once.take(&store, "new", 1);
        assert_eq!((reading.admits, reading.source), (true, Source::Local), "{case}: {reading:?}");
        assert_eq!(once.flood(&store, "more", 3 * MOST), 0, "{case}: all new keys together have one limit");
        let peek = once.take(&store, "unknown", 0);
        assert_eq!((peek.remaining, peek.source), (0, Source::Local), "{case}: a peek says so");
        assert_eq!(once.flood(&store, "known", MOST), 0, "{case}: none was forgotten");
        let stats = store.stats();
        assert_eq!((stats.keys, stats.evicted, stats.coarse, stats.uncounted), (MOST, 0, 1, 0), "{case}");
        // Another rule has its guarantee, and counters of the first one are forgotten for it only then.
        let login = Rule::new("login", 2, HOUR, FIXED, OnFailure::Deny);
        assert_eq!(login.flood(&store, "login", MOST / 4), MOST / 4, "{case}");
        assert_eq!(store.stats().evicted as usize, MOST / 4, "{case}");
        assert!((0..MOST / 4).all(|key| login.used(&store, &format!("login-{key}")) == 1), "{case}");
    }
}

#[test]
fn new_keys_are_refused_if_that_is_the_policy_and_all_counters_of_the_rule_refuse() {
    const MOST: usize = 200;
    for once in Rule::kinds(1, OnFailure::Deny) {
        let (store, _) = store(MOST);
        let case = format!("{:?}", once.limit.algorithm());
        assert_eq!(once.flood(&store, "known", MOST), MOST, "{case}");
        let reading = once.take(&store, "new", 1);
        let expected = (false, Source::Assumed, Wait::For(Reading::RETRY_AFTER));
        assert_eq!((reading.admits, reading.source, reading.wait), expected, "{case}: {reading:?}");
        assert_eq!(once.flood(&store, "more", MOST), 0, "{case}");
        assert_eq!(once.flood(&store, "known", MOST), 0, "{case}: none was forgotten");
        let stats = store.stats();
        assert_eq!((stats.keys, stats.evicted, stats.coarse, stats.uncounted), (MOST, 0, 0, 1 + MOST as u64), "{case}");
        // The rest of a claim is not charged for what is refused.
        let open = Rule::open();
        let both = settle(&store, 7, [open.charge("x", Ask::Exactly, 1), once.charge("x", Ask::Exactly, 1)]);
        assert_eq!((both.readings[0].taken, both.readings[1].taken), (0, 0), "{case}");
        assert_eq!(open.used(&store, "x"), 0, "{case}");
    }
}

#[test]
fn keys_get_counters_again_when_others_are_stale() {
    const MOST: usize = 200;
    let (store, clock) = store(MOST);
    let once = Rule::new("once", 1, MINUTE, FIXED, OnFailure::Local);
    assert_eq!(once.flood(&store, "first", 2 * MOST), MOST + 1);
    clock.set(START.after(Span::from_secs(MINUTE)));
    assert_eq!(once.flood(&store, "second", MOST), MOST);
    assert_eq!(store.stats().coarse, 1);
}

#[test]
fn holds_in_a_common_counter_are_released_by_their_own_claims() {
    let (store, _) = store(100);
    let slots = Rule::new("slots", 2, HOUR, Algorithm::Concurrency, OnFailure::Local);
    assert_eq!(slots.flood(&store, "known", 100), 100);
    let take = |id: u128, caller: &str| settle(&store, id, [slots.charge(caller, Ask::Exactly, 1)]).readings[0].admits;
    let release = |id: u128, caller: &str| {
        let back = Ask::Return { taken_at: START };
        settle(&store, id, [slots.charge(caller, back, 1)]).readings[0].taken
    };
    assert_eq!([(1, "a"), (2, "b"), (3, "c")].map(|(id, caller)| take(id, caller)), [true, true, false]);
    assert_eq!([(3, "c"), (1, "a"), (1, "a")].map(|(id, caller)| release(id, caller)), [0, 1, 0]);
    assert_eq!([(4, "d"), (5, "e")].map(|(id, caller)| take(id, caller)), [true, false]);
}

/// Several new keys in one claim: those of one rule, the same key twice, and counters that the claim itself needs.
#[test]
fn a_claim_on_several_new_keys_of_a_full_store() {
    const MOST: usize = 100;
    let (store, _) = store(MOST);
    let (once, open) = (Rule::new("once", 1, HOUR, FIXED, OnFailure::Local), Rule::open());
    assert_eq!(once.flood(&store, "known", MOST - 2), MOST - 2);
    open.take(&store, "x", 5);
    open.take(&store, "y", 5);
    let claim = |charges: Vec<Charge<'_>>| settle(&store, 1, charges).readings.iter().map(|it| it.admits).collect();
    let three = |callers: [&'static str; 3]| callers.map(|caller| once.charge(caller, Ask::Exactly, 1)).into();
    let refused: Vec<bool> = claim(three(["a", "b", "a"]));
    assert_eq!(refused, [false; 3], "they need three units of a counter of one");
    let with_own: Vec<bool> = claim(vec![open.charge("x", Ask::Exactly, 1), once.charge("new", Ask::Exactly, 1)]);
    assert_eq!(with_own, [true, true]);
    assert_eq!(open.used(&store, "x"), 6, "the claim's own counter is not replaced");
    for key in 0..10 * MOST {
        let key = key.to_string();
        settle(&store, 1, ["a", "b", "c"].map(|_| open.charge(&key, Ask::Exactly, 1)));
        assert!(store.stats().keys <= MOST, "{:?}", store.stats());
    }
    assert_eq!(once.flood(&store, "known", MOST - 2), 0, "what refuses stays");
}

/// More rules than a shard tells apart.
#[test]
fn many_rules_stay_within_the_bound() {
    const MOST: usize = 900;
    let (store, _) = store(MOST);
    for number in 0..3_000 {
        let rule = Rule::new(&number.to_string(), 10, HOUR, FIXED, OnFailure::Local);
        assert!((0..3).all(|key| rule.take(&store, &format!("{key}"), 1).admits), "rule {number}");
    }
    assert!(store.stats().keys <= MOST, "{:?}", store.stats());
}

#[test]
fn a_smaller_store_restores_what_refuses_and_what_is_guaranteed() {
    let (original, _) = store(1_000);
    let (open, login) = (Rule::open(), Rule::new("login", 2, MINUTE, FIXED, OnFailure::Deny));
    let rare = Rule::new("rare", 10, MINUTE, FIXED, OnFailure::Local);
    open.flood(&original, "open", 800);
    for key in 0..20 {
        login.take(&original, &format!("login-{key}"), 2);
        rare.take(&original, &format!("rare-{key}"), 1);
        open.take(&original, &format!("busy-{key}"), 900);
    }
    let mut bytes = Vec::new();
    original.snapshot(&mut bytes).unwrap();
    let small = MemoryConfig { max_keys: 120, grace: Span::ZERO, ..MemoryConfig::default() };
    let (store, report) = small.restore_with(&mut &*bytes, ManualClock::at(START)).unwrap();
    assert_eq!((store.stats().keys, report.dropped), (120, 860 - 120));
    open.flood(&store, "more", 1_000);
    for key in 0..20 {
        assert!(!login.take(&store, &format!("login-{key}"), 1).admits);
        assert_eq!(rare.used(&store, &format!("rare-{key}")), 1, "the rule has a guarantee of 20");
        assert_eq!(open.used(&store, &format!("busy-{key}")), 900);
    }
}

/// What a history has taken, by rule and key.
type Model = HashMap<(usize, usize), u64>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A counter that refuses is forgotten only for a rule below its guarantee, and only if every counter beyond the
    /// guarantee of its rule refuses.
    #[test]
    fn what_refuses_goes_last(
        max_keys in 4usize..24,
        steps in prop::collection::vec((0usize..3, 0usize..24, 1u64..4), 1..200),
    ) {
        let (store, _) = store(max_keys);
        let rules = [
            Rule::new("one", 1, DAY, FIXED, OnFailure::Local),
            Rule::new("three", 3, DAY, FIXED, OnFailure::Local),
            Rule::new("nine", 9, DAY, Algorithm::SlidingLog, OnFailure::Deny),
        ];
        let amount = |rule: usize| rules[rule].limit.amount();
        let mut model = Model::new();
        for (rule, key, times) in steps {
            for _ in 0..times {
                let before = model.clone();
                let reading = rules[rule].take(&store, &key.to_string(), 1);
                if reading.admits && reading.source == Source::Store {
                    // A counter that was forgotten starts from nothing.
                    model.insert((rule, key), amount(rule) - reading.remaining);
                }
                prop_assert!(store.stats().keys <= max_keys);
                // Without a counter, a peek shows a fresh one or the common counter of the rule.
                let is_gone = |(rule, key): &(usize, usize), used: &u64| {
                    let peek = rules[*rule].take(&store, &key.to_string(), 0);
                    peek.source != Source::Store || amount(*rule) - peek.remaining != *used
                };
                let mut scopes: Vec<usize> = before.keys().map(|(rule, _)| *rule).chain([rule]).collect();
                scopes.sort_unstable();
                scopes.dedup();
                let guarantee = max_keys / (2 * scopes.len());
                let counters = |of: usize| before.keys().filter(|(rule, _)| *rule == of).count();
                let gone: Vec<_> = before.iter().filter(|(at, used)| **at != (rule, key) && is_gone(at, used)).map(|(at, _)| *at).collect();
                for at in &gone {
                    model.remove(at);
                    if before[at] < amount(at.0) {
                        continue;
                    }
                    let yields = |other: &(usize, usize), used: &u64| {
                        *used < amount(other.0) && (other.0 == at.0 || counters(other.0) > guarantee)
                    };
                    let yielding = before.iter().find(|(other, used)| yields(other, used));
                    prop_assert!(yielding.is_none(), "{:?} was forgotten before {:?}", at, yielding);
                    prop_assert!(counters(rule) < guarantee, "{:?} was forgotten for {:?}", at, rule);
                }
                prop_assert!(gone.len() <= 1, "{:?}", gone);
            }
        }
    }
}
