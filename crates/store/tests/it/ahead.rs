//! Rules with `ahead`: servers that admit a part of a limit before the store counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Source, Span, Timestamp, Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::{LeaseConfig, Leased, ManualClock, MemoryConfig, MemoryStore, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The shared store: counts claims, and can lose them.
struct Shared {
    store: MemoryStore<ManualClock>,
    claims: AtomicU64,
    is_lost: AtomicBool,
}

impl Store for Shared {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.claims.fetch_add(1, Ordering::Relaxed);
        match self.is_lost.load(Ordering::Relaxed) {
            true => self.store.assume(claim, Source::Assumed, settlement),
            false => self.store.settle_into(claim, settlement).await,
        }
    }
}

type Server = Leased<Arc<Shared>, ManualClock>;

struct World {
    clock: ManualClock,
    shared: Arc<Shared>,
    servers: Vec<Server>,
    scope: Scope,
    limit: Limit,
}

impl World {
    /// Servers that share a limit of so many a minute, of which 10 % may be admitted ahead.
    fn new(servers: usize, amount: u64, algorithm: Algorithm) -> World {
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        let shared = Arc::new(Shared { store, claims: AtomicU64::new(0), is_lost: AtomicBool::new(false) });
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(60)).unwrap(), algorithm).unwrap();
        let scope = Scope::new("d", "rule", algorithm, limit.period(), Home::Caller(0));
        let server = |_| {
            let server = Leased::with_clock(shared.clone(), LeaseConfig::default(), clock.clone());
            server.set_servers(servers as u64);
            server
        };
        World { servers: (0..servers).map(server).collect(), shared, clock, scope, limit }
    }

    fn at(&self, millis: u64) {
        self.clock.set(START.after(Span::from_micros(millis * 1_000)));
        for server in &self.servers {
            block_on(server.maintain());
        }
    }

    fn charge(&self, caller: &'static str, units: u64) -> Charge<'_> {
        Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(caller)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Ahead(1_000),
        }
    }

    fn ask(&self, server: usize, caller: &'static str, units: u64) -> Reading {
        let charges = smallvec![self.charge(caller, units)];
        let claim = Claim { id: ClaimId(1), charges, once: None, timeout: None };
        block_on(self.servers[server].settle(&claim)).readings[0]
    }

    /// What the store has counted.
    fn counted(&self, caller: &'static str) -> u64 {
        let charges = smallvec![Charge { shortcuts: Shortcuts::None, ..self.charge(caller, 0) }];
        let claim = Claim { id: ClaimId(1), charges, once: None, timeout: None };
        let reading = block_on(self.shared.store.settle(&claim)).readings[0];
        self.limit.quota() - reading.remaining
    }

    fn claims(&self) -> u64 {
        self.shared.claims.load(Ordering::Relaxed)
    }
}

#[test]
fn a_rare_key_does_not_wait_and_is_counted_soon() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    // The store's clock is not known before its first answer.
    assert_eq!(world.ask(0, "ada", 1).source, Source::Store);
    let before = world.claims();
    let reading = world.ask(0, "bob", 1);
    assert_eq!((reading.admits, reading.source, reading.remaining), (true, Source::Lease, 999));
    assert_eq!((world.claims() - before, world.counted("bob")), (0, 0), "not counted yet");
    world.at(100);
    assert_eq!((world.claims() - before, world.counted("bob")), (1, 1));
    world.at(200);
    assert_eq!(world.claims() - before, 1, "once");
    let status = world.servers[0].status(0);
    assert_eq!((status.counts.advanced, status.counts.debits), (1, 1));
}

#[test]
fn a_server_spends_its_share_and_then_waits() {
    let world = World::new(4, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    // 10 % of 1,000 are 100 for all servers, 25 for each.
    assert_eq!(world.ask(0, "bob", 26).source, Source::Store, "more than a share at once");
    let sources: Vec<Source> = (0..3).map(|_| world.ask(0, "cy", 10).source).collect();
    assert_eq!(sources, [Source::Lease, Source::Lease, Source::Store]);
}

#[test]
fn nothing_is_spent_before_the_number_of_servers_is_known() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    world.servers[0].set_servers(0);
    world.ask(0, "ada", 1);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Store);
}

#[test]
fn a_share_of_less_than_a_unit_is_none() {
    let world = World::new(200, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Store);
}

#[test]
fn a_server_stops_near_the_limit_and_begins_again_in_the_next_window() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    assert!(world.ask(1, "bob", 905).admits);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Lease, "it does not know yet");
    world.at(100);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Store, "94 are left, which is less than all may spend");
    world.at(60_100);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Lease, "another window");
}

#[test]
fn units_are_sent_again_if_the_store_did_not_answer() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    world.ask(0, "bob", 5);
    world.shared.is_lost.store(true, Ordering::Relaxed);
    world.at(100);
    assert_eq!(world.counted("bob"), 0);
    world.shared.is_lost.store(false, Ordering::Relaxed);
    assert_eq!(world.ask(0, "bob", 1).source, Source::Store, "nothing more is spent for a while");
    world.at(200);
    assert_eq!(world.counted("bob"), 6);
}

#[test]
fn a_server_that_stops_has_everything_counted() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    world.ask(0, "bob", 5);
    block_on(world.servers[0].stop());
    assert_eq!(world.counted("bob"), 5);
}

#[test]
fn another_limit_that_refuses_leaves_nothing_spent() {
    let world = World::new(2, 1_000, Algorithm::FixedWindow);
    world.ask(0, "ada", 1);
    let small = Limit::new(1, Period::fixed(Span::from_secs(60)).unwrap(), Algorithm::FixedWindow).unwrap();
    let scope = Scope::new("d", "small", Algorithm::FixedWindow, small.period(), Home::Caller(0));
    let exact = Charge {
        key: Key::new(&scope, smallvec![Value::Text("bob")]),
        limit: &small,
        shortcuts: Shortcuts::None,
        ..world.charge("bob", 1)
    };
    for passes in [true, false] {
        let charges = smallvec![world.charge("bob", 1), exact.clone()];
        let claim = Claim { id: ClaimId(1), charges, once: None, timeout: None };
        let readings = block_on(world.servers[0].settle(&claim)).readings;
        assert_eq!((readings[1].admits, readings[0].taken), (passes, u64::from(passes)));
    }
    world.at(100);
    assert_eq!(world.counted("bob"), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However requests come, the limit is exceeded by at most the part that may be admitted ahead.
    #[test]
    fn the_bound_holds(
        servers in 1usize..6,
        amount in 20u64..400,
        sliding in any::<bool>(),
        steps in prop::collection::vec((0u64..120, 0usize..6, 1u64..4), 50..600),
    ) {
        let algorithm = if sliding { Algorithm::SlidingWindow { sub_windows: 1 } } else { Algorithm::FixedWindow };
        let world = World::new(servers, amount, algorithm);
        let (mut millis, mut admitted, mut window) = (0, 0, 0);
        for (wait, server, units) in steps {
            millis += wait;
            world.at(millis);
            if millis / 60_000 > window {
                (window, admitted) = (millis / 60_000, 0);
            }
            if world.ask(server % servers, "ada", units).admits {
                admitted += units;
            }
            prop_assert!(admitted <= amount + amount / 10, "{admitted} of {amount}");
        }
    }
}
