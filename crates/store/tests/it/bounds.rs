//! The bounds of the in-memory store: which counters are removed when it is full, and that they are counted.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Reading, Replay, Scope,
    Settlement, Shortcuts, Span, Timestamp, Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

struct Full {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
    scope: Scope,
    limit: Limit,
}

impl Full {
    /// Ten units in ten seconds: a key with n units is stale after n seconds.
    fn new(max_keys: usize, max_once: usize) -> Full {
        Full::with(MemoryConfig { max_keys, max_once, grace: Span::ZERO, ..MemoryConfig::default() })
    }

    fn with(config: MemoryConfig) -> Full {
        let period = Period::fixed(Span::from_secs(10)).unwrap();
        let limit = Limit::new(10, period, Algorithm::Bucket { burst: 10, paced: false }).unwrap();
        let scope = Scope::new("d", "r", limit.algorithm(), limit.period(), Home::Caller(0));
        let clock = ManualClock::at(START);
        Full { store: config.build_with(clock.clone()), clock, scope, limit }
    }

    fn settle(&self, caller: &str, units: u64, once: Option<&str>) -> Settlement {
        let key = |value| Key::new(&self.scope, smallvec![value]);
        let charge = Charge {
            key: key(Value::Text(caller)),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        let once = once.map(|name| Once { key: key(Value::Text(name)), body: 0, terms: 0, keep: Span::from_secs(60) });
        block_on(self.store.settle(&Claim { id: ClaimId(1), charges: smallvec![charge], once, timeout: None }))
    }

    fn take(&self, caller: &str, units: u64) -> Reading {
        self.settle(caller, units, None).readings[0]
    }

    /// Peeks under a name of a caller. The record lasts this many seconds.
    fn name(&self, caller: &str, name: &str, seconds: u64) -> Replay {
        let key = Key::new(&self.scope, smallvec![Value::Text(caller), Value::Text(name)]);
        let once = Once { key, body: 0, terms: 0, keep: Span::from_secs(seconds) };
        block_on(self.store.settle(&Claim { id: ClaimId(1), charges: smallvec![], once: Some(once), timeout: None }))
            .replay
    }
}

const AGAIN: Replay = Replay::Again { terms: 0, passed: true };

#[test]
fn a_flood_of_new_keys_stays_within_the_bound() {
    const MOST: usize = 10_000;
    let full = Full::new(MOST, 1);
    for key in 0..10 * MOST {
        assert!(full.take(&key.to_string(), 1).admits);
    }
    let stats = full.store.stats();
    // The bound is divided among the shards, each share rounded up.
    assert!(stats.keys <= MOST + MOST / 100, "{stats:?}");
    assert!(stats.keys >= MOST / 2, "a flood must not empty the store: {stats:?}");
    assert_eq!(
        (stats.evicted as usize, stats.swept),
        (10 * MOST - stats.keys, 0),
        "every live one that went is counted"
    );
}

#[test]
fn stale_ones_go_first() {
    let full = Full::new(1_000, 1);
    for key in 0..700 {
        full.take(&format!("old-{key}"), 1);
    }
    full.clock.set(START.after(Span::from_secs(2)));
    for key in 0..700 {
        full.take(&format!("new-{key}"), 5);
    }
    let stats = full.store.stats();
    assert_eq!(stats.evicted, 0, "{stats:?}");
    assert!(stats.swept > 0 && stats.keys <= 1_000, "{stats:?}");
    for key in 0..700 {
        assert_eq!(full.take(&format!("new-{key}"), 0).remaining, 5, "a live key went while stale ones were there");
    }
}

#[test]
fn of_live_ones_the_one_with_the_most_room_goes() {
    let full = Full::new(100, 1);
    for key in 0..50 {
        full.take(&format!("short-{key}"), 1);
        full.take(&format!("long-{key}"), 10);
    }
    assert_eq!(full.store.stats().evicted, 0);
    for key in 50..100 {
        full.take(&format!("long-{key}"), 10);
    }
    assert_eq!(full.store.stats().evicted, 50);
    for key in 0..100 {
        assert!(!full.take(&format!("long-{key}"), 1).admits, "long-{key} was forgotten before one with more room");
    }
}

#[test]
fn looks_and_refusals_take_no_room() {
    let full = Full::new(100, 1);
    for key in 0..1_000 {
        assert!(full.take(&key.to_string(), 0).admits);
        assert!(!full.take(&key.to_string(), 11).admits);
    }
    assert_eq!(full.store.stats().keys, 0);
}

#[test]
fn records_of_claims_settled_once_are_bounded() {
    const MOST: usize = 100;
    let full = Full::new(1_000, MOST);
    for name in 0..10 * MOST {
        let name = name.to_string();
        assert_eq!(full.settle(&name, 1, Some(&name)).replay, Replay::First);
    }
    let stats = full.store.stats();
    assert!(stats.once <= MOST, "{stats:?}");
    assert_eq!(stats.once + stats.once_evicted as usize, 10 * MOST, "{stats:?}");
    let replay = |name: usize| full.settle(&name.to_string(), 1, Some(&name.to_string())).replay;
    assert_eq!(replay(10 * MOST - 1), Replay::Again { terms: 0, passed: true }, "the newest stays");
    assert_eq!(replay(0), Replay::First, "the oldest goes");
}

#[test]
fn a_caller_with_many_records_displaces_its_own() {
    let config = MemoryConfig { max_keys: 1, max_once: 1_000, max_once_per_caller: 100, ..MemoryConfig::default() };
    let full = Full::with(config);
    for caller in 0..500 {
        assert_eq!(full.name(&format!("caller-{caller}"), "order", 60), Replay::First);
    }
    // They expire later than those of the others, which would therefore be evicted first.
    for name in 0..5_000 {
        assert_eq!(full.name("eager", &name.to_string(), 90), Replay::First);
    }
    let stats = full.store.stats();
    assert_eq!((stats.once, stats.once_evicted), (600, 4_900), "{stats:?}");
    for caller in 0..500 {
        assert_eq!(full.name(&format!("caller-{caller}"), "order", 60), AGAIN, "caller {caller}");
    }
    assert_eq!(full.name("eager", "4900", 90), AGAIN, "its newest ones stay");
    assert_eq!(full.name("eager", "4899", 90), Replay::First);
    // One caller never has more than half of a table, whatever the bound.
    let greedy = Full::with(MemoryConfig { max_once_per_caller: 10_000, ..config });
    for name in 0..5_000 {
        greedy.name("eager", &name.to_string(), 90);
    }
    assert_eq!(greedy.store.stats().once, 500);
}

#[test]
fn expired_records_make_room_before_others() {
    let full = Full::new(1, 1_000);
    for caller in 0..500 {
        assert_eq!(full.name(&format!("long-{caller}"), "order", 3_600), Replay::First);
    }
    for round in 0..10 {
        full.clock.set(START.after(Span::from_secs(round * 2)));
        for caller in 0..500 {
            assert_eq!(full.name(&format!("short-{caller}"), "order", 1), Replay::First, "round {round}");
        }
    }
    let stats = full.store.stats();
    assert!(stats.once_evicted == 0 && stats.once <= 1_000, "{stats:?}");
    for caller in 0..500 {
        assert_eq!(full.name(&format!("long-{caller}"), "order", 3_600), AGAIN, "caller {caller}");
    }
}

#[test]
fn records_that_are_over_are_not_counted_as_lost() {
    let full = Full::new(1_000, 100);
    for round in 0..10 {
        full.clock.set(START.after(Span::from_secs(round * 100)));
        for name in 0..50 {
            let name = name.to_string();
            assert_eq!(full.settle(&name, 1, Some(&name)).replay, Replay::First, "round {round}");
        }
    }
    let stats = full.store.stats();
    assert_eq!(stats.once_evicted, 0, "{stats:?}");
    assert!(stats.once <= 100, "{stats:?}");
}

#[test]
fn a_stale_counter_stays_for_its_grace_unless_there_is_no_room() {
    const GRACE: Span = Span::from_secs(30);
    let full = Full::with(MemoryConfig { max_keys: 100, grace: GRACE, ..MemoryConfig::default() });
    let flood = |at: u64, from: u32, to: u32| {
        full.clock.set(START.after(Span::from_secs(at)));
        (from..to).for_each(|key| assert!(full.take(&key.to_string(), 1).admits));
    };
    assert_eq!(full.take("early", 10).remaining, 0);
    flood(20, 0, 50);
    full.clock.set(START.after(Span::from_secs(5)));
    assert_eq!(
        full.take("early", 0).remaining,
        5,
        "stale at 10 s, and there again for a clock that was set back to 5 s"
    );
    flood(45, 50, 90);
    full.clock.set(START.after(Span::from_secs(5)));
    assert_eq!(full.take("early", 0).remaining, 10, "30 s after it was stale it is gone");
    flood(46, 90, 300);
    let stats = full.store.stats();
    assert!(stats.keys <= 100, "{stats:?}");
    flood(48, 300, 400);
    assert_eq!(full.store.stats().evicted, stats.evicted, "stale ones make room, grace or not: {stats:?}");
}
