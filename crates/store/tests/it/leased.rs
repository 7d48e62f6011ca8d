//! Leases over the in-memory store: several servers that share it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Reading, RegionLink,
    RegionShare, Scope, Settlement, Shortcuts, Source, Span, StateSlot, Timestamp, Value, settle,
};
use tollgate_store::conformance::block_on;
use tollgate_store::leased::KeyAdjustment;
use tollgate_store::{LeaseConfig, Leased, ManualClock, MemoryConfig, MemoryStore, PurgedLeases, Store};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The shared store: counts claims, and can be made to hang, or to answer the claims with the id [`LATE`] later.
struct Shared {
    store: MemoryStore<ManualClock>,
    claims: AtomicU64,
    hangs: AtomicBool,
    is_late: AtomicBool,
}

const LATE: ClaimId = ClaimId(7);

impl Store for Shared {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.claims.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.store.settle_into(claim, settlement).await;
        let is_waiting = || claim.id == LATE && self.is_late.load(Ordering::Relaxed);
        poll_fn(|_| if is_waiting() { Poll::Pending } else { Poll::Ready(()) }).await;
    }
}

type Server = Leased<Arc<Shared>, ManualClock>;

struct World {
    clock: ManualClock,
    shared: Arc<Shared>,
    servers: Vec<Server>,
}

impl World {
    fn new(servers: usize) -> World {
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        let shared = Arc::new(Shared {
            store,
            claims: AtomicU64::new(0),
            hangs: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
        });
        let server = |_| Leased::with_clock(shared.clone(), LeaseConfig::default(), clock.clone());
        World { servers: (0..servers).map(server).collect(), shared, clock }
    }

    /// Moves the time, and lets every server do its background work.
    fn at(&self, micros: u64) {
        self.clock.set(START.after(Span::from_micros(micros)));
        for server in &self.servers {
            block_on(server.maintain());
        }
    }

    fn claims(&self) -> u64 {
        self.shared.claims.load(Ordering::Relaxed)
    }
}

struct Rule {
    scope: Scope,
    limit: Limit,
    shortcuts: Shortcuts,
}

impl Rule {
    fn new(name: &str, amount: u64, seconds: u64, algorithm: Algorithm) -> Rule {
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(seconds)).unwrap(), algorithm).unwrap();
        let scope = Scope::new("d", name, algorithm, limit.period(), Home::Caller(0));
        Rule { scope, limit, shortcuts: Shortcuts::Leases }
    }

    fn exact(self) -> Rule {
        Rule { shortcuts: Shortcuts::Refusals, ..self }
    }

    fn charge(&self, ask: Ask, units: u64) -> Charge<'_> {
        Charge {
            key: Key::new(&self.scope, smallvec![Value::Text("ada")]),
            limit: &self.limit,
            ask,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: self.shortcuts,
        }
    }

    fn take(&self, units: u64) -> Charge<'_> {
        self.charge(Ask::Exactly, units)
    }

    /// What the store has left, whoever holds units.
    fn left(&self, world: &World) -> u64 {
        let claim = claim([self.take(0)]);
        block_on(world.shared.store.settle(&claim)).readings[0].remaining
    }
}

fn claim<'a>(charges: impl IntoIterator<Item = Charge<'a>>) -> Claim<'a> {
    Claim { id: ClaimId(1), charges: charges.into_iter().collect(), once: None, timeout: None }
}

fn reading(server: &Server, charge: Charge<'_>) -> Reading {
    block_on(server.settle(&claim([charge]))).readings[0]
}

fn passes(server: &Server, charge: Charge<'_>) -> bool {
    reading(server, charge).admits
}

/// A server with a lease on the rule's key, after 50 requests, 10 ms apart, in the middle of a minute.
fn warmed(world: &World, rule: &Rule) {
    for request in 0..50 {
        world.at(20_000_000 + request * 10_000);
        assert!(passes(&world.servers[0], rule.take(1)));
    }
    assert!(world.servers[0].status(1).held > 0, "the key is leased");
}

fn minute(algorithm: Algorithm) -> Rule {
    Rule::new("rule", 10_000, 60, algorithm)
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow { sub_windows: 1 },
    Algorithm::SlidingWindow { sub_windows: 6 },
    Algorithm::Bucket { burst: 10_000, paced: false },
];

#[test]
fn a_busy_key_is_decided_without_the_store() {
    for algorithm in ALGORITHMS {
        let (world, rule) = (World::new(1), minute(algorithm));
        warmed(&world, &rule);
        let before = world.claims();
        let mut leased = 0;
        for request in 0..3_000 {
            world.at(21_000_000 + request * 10_000);
            let reading = reading(&world.servers[0], rule.take(1));
            assert!(reading.admits);
            leased += u64::from(reading.source == Source::Lease);
        }
        let calls = world.claims() - before;
        assert!(calls < 100 && leased > 2_900, "{algorithm:?}: {calls} calls, {leased} of 3,000 leased");
        // Nobody else takes units, so nothing is unknown. The bucket drains faster than it is filled; leases reserve up to a
        // fiftieth of it. Units that are left over at the end of a part are let go while most of the quota is left.
        let used = 10_000 - reading(&world.servers[0], rule.take(0)).remaining;
        let is_bucket = matches!(algorithm, Algorithm::Bucket { .. });
        assert!(if is_bucket { used <= 200 } else { (3_050..3_080).contains(&used) }, "{algorithm:?}: {used}");
    }
}

#[test]
fn rare_keys_and_rules_without_leases_go_to_the_store() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    for request in 0..20 {
        world.at(request * 9_000_000);
        assert_eq!(reading(&world.servers[0], rule.take(1)).source, Source::Store);
    }
    let exact = Rule::new("exact", 10_000, 60, Algorithm::FixedWindow).exact();
    for _ in 0..1_000 {
        assert_eq!(reading(&world.servers[0], exact.take(1)).source, Source::Store);
    }
    assert_eq!((world.claims(), world.servers[0].status(1).keys), (1_020, 0));
}

#[test]
fn what_is_idle_is_given_back() {
    for algorithm in ALGORITHMS {
        let (world, rule) = (World::new(1), minute(algorithm));
        warmed(&world, &rule);
        for step in 0..60 {
            world.at(21_000_000 + step * 50_000);
        }
        let status = world.servers[0].status(1);
        assert_eq!((status.keys, status.held), (0, 0), "{algorithm:?}");
        let left = rule.left(&world);
        match algorithm {
            Algorithm::Bucket { .. } => assert_eq!(left, 10_000, "drained"),
            _ => assert_eq!(left, 9_950, "{algorithm:?}: {:?}", status.counts),
        }
        assert_accounted(&world);
    }
}

#[test]
fn leases_that_are_switched_off_are_given_back_at_once() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    warmed(&world, &rule);
    world.servers[0].set_enabled(false);
    block_on(world.servers[0].maintain());
    assert_eq!((rule.left(&world), world.servers[0].status(1).keys), (9_950, 0));
    assert_eq!(reading(&world.servers[0], rule.take(1)).source, Source::Store);
    world.servers[0].set_enabled(true);
    warmed(&world, &rule);
    block_on(world.servers[0].stop());
    assert_eq!(rule.left(&world), 9_899, "also when the server stops");
    assert_accounted(&world);
}

/// A leased and an exact limit in one claim: if either refuses, neither has taken anything.
#[test]
fn claims_of_leased_and_exact_limits_take_all_or_nothing() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    let exact = Rule::new("exact", 3, 60, Algorithm::FixedWindow).exact();
    warmed(&world, &rule);
    let held = |world: &World| world.servers[0].status(1).held;
    let server = &world.servers[0];
    for remaining in [2, 1, 0] {
        let before = held(&world);
        let settlement = block_on(server.settle(&claim([rule.take(1), exact.take(1)])));
        let sources: Vec<_> = settlement.readings.iter().map(|reading| (reading.admits, reading.source)).collect();
        assert_eq!(sources, [(true, Source::Lease), (true, Source::Store)]);
        assert_eq!((settlement.readings[1].remaining, held(&world)), (remaining, before - 1));
    }
    let before = (held(&world), rule.left(&world));
    let settlement = block_on(server.settle(&claim([rule.take(1), exact.take(1)])));
    assert_eq!((settlement.readings[0].taken, settlement.readings[1].admits), (0, false));
    assert_eq!((held(&world), rule.left(&world)), before);
    // The other way round: a second leased limit, used up, refuses without a call.
    let small = Rule::new("small", 100, 60, Algorithm::FixedWindow);
    while passes(server, small.take(1)) {}
    let (before, claims) = ((held(&world), exact.left(&world)), world.claims());
    let settlement = block_on(server.settle(&claim([rule.take(1), small.take(1), exact.take(1)])));
    let refused: Vec<_> = settlement.readings.iter().map(|reading| reading.admits).collect();
    assert_eq!((refused, settlement.readings[1].source), (vec![true, false, true], Source::Lease));
    assert_eq!(((held(&world), exact.left(&world)), world.claims()), (before, claims));
    assert_accounted(&world);
}

/// A claim that another limit refuses takes no chunk. That says nothing about the units that the store has.
#[test]
fn a_refusal_by_another_limit_pauses_nothing() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    let exact = Rule::new("exact", 1, 60, Algorithm::FixedWindow).exact();
    warmed(&world, &rule);
    let server = &world.servers[0];
    assert!(passes(server, exact.take(1)));
    // Without units, the next request of the key calls the store, and takes a chunk with it.
    let _ = server.purge(|_| true);
    block_on(server.maintain());
    let settlement = block_on(server.settle(&claim([rule.take(1), exact.take(1)])));
    assert_eq!(settlement.readings.iter().map(|reading| reading.admits).collect::<Vec<_>>(), [true, false]);
    assert_eq!(server.status(1).held, 0);
    let next = reading(server, rule.take(1));
    assert_eq!((next.admits, next.source), (true, Source::Store));
    assert!(server.status(1).held > 0, "the next call takes a chunk");
    assert_accounted(&world);
}

/// A caller that is gone while the store is called leaves nothing reserved.
#[test]
fn a_caller_that_is_gone_leaves_its_units() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    let exact = Rule::new("exact", 3, 60, Algorithm::FixedWindow).exact();
    warmed(&world, &rule);
    let held = world.servers[0].status(1).held;
    world.shared.hangs.store(true, Ordering::Relaxed);
    {
        let charges = claim([rule.take(2), exact.take(1)]);
        let mut call = pin!(world.servers[0].settle(&charges));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(world.servers[0].status(1).held, held - 2, "reserved");
    }
    assert_eq!(world.servers[0].status(1).held, held);
    assert_accounted(&world);
}

#[test]
fn shadow_limits_are_leased_and_refuse_nothing() {
    let (world, rule) = (World::new(1), Rule::new("small", 100, 60, Algorithm::FixedWindow));
    let shadow = || Charge { mode: Mode::Shadow, ..rule.take(1) };
    let server = &world.servers[0];
    let would_pass = (0..200).filter(|_| passes(server, shadow())).count();
    assert_eq!(would_pass, 100);
    let claims = world.claims();
    assert_eq!(reading(server, shadow()).source, Source::Lease);
    assert_eq!(world.claims(), claims, "what it would refuse is known here");
    let soft = Charge { mode: Mode::Soft, ..rule.take(1) };
    let reading = reading(server, soft);
    assert_eq!((reading.taken, reading.source), (1, Source::Store), "soft limits count past the limit in the store");
}

#[test]
fn claims_that_must_be_exact_go_to_the_store_whole() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    warmed(&world, &rule);
    let scope = Scope::for_records("d", "records", Home::Caller(0));
    let key = Key::new(&scope, smallvec![Value::Text("ada"), Value::Text("one")]);
    let once = Some(Once { key, body: 1, terms: 1, keep: Span::from_secs(60) });
    let idempotent = Claim { once, ..claim([rule.take(1)]) };
    let any_of = claim([Charge { mode: Mode::AnyOf, ..rule.take(1) }]);
    for claim in [idempotent, any_of, claim([rule.charge(Ask::Regardless, 1)])] {
        let held = world.servers[0].status(1).held;
        let settlement = block_on(world.servers[0].settle(&claim));
        assert_eq!(settlement.readings[0].source, Source::Store);
        assert_eq!(world.servers[0].status(1).held, held);
    }
}

/// The shared store while debits of other regions are late.
struct Lagging(Arc<Shared>);

impl Store for Lagging {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.0.settle_into(claim, settlement).await;
        (settlement.link, settlement.lowered_to) = (RegionLink::Lagging, RegionShare { parts: 8, whole: 9 });
    }
}

#[test]
fn answers_of_the_store_to_leased_keys_say_how_other_regions_are_doing() {
    let (world, rule) = (World::new(0), minute(Algorithm::FixedWindow));
    let server = Leased::with_clock(Lagging(world.shared.clone()), LeaseConfig::default(), world.clock.clone());
    let mut called = 0;
    for request in 0..50 {
        world.at(20_000_000 + request * 10_000);
        let settlement = block_on(server.settle(&claim([rule.take(1)])));
        if settlement.readings[0].source == Source::Store {
            called += 1;
            assert_eq!((settlement.link, settlement.lowered_to.parts), (RegionLink::Lagging, 8), "request {request}");
        }
    }
    assert!(server.status(1).held > 0 && called > 1, "{called} calls");
}

#[test]
fn a_reset_and_a_changed_limit_take_effect_at_once() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    warmed(&world, &rule);
    let server = &world.servers[0];
    // As operators do: no shortcut may answer.
    let reset = Charge { shortcuts: Shortcuts::None, ..rule.charge(Ask::Reset, 0) };
    block_on(server.settle(&claim([reset])));
    assert_eq!((server.status(1).held, rule.left(&world)), (0, 10_000), "held units are no longer counted");
    warmed(&world, &rule);
    let lower = Rule { limit: rule.limit.with_amount(200), ..Rule::new("rule", 200, 60, Algorithm::FixedWindow) };
    let passed = (0..400).filter(|_| passes(server, lower.take(1))).count();
    world.at(20_500_000);
    let passed = passed + (0..400).filter(|_| passes(server, lower.take(1))).count();
    // 50 were spent before, and at most as many as were held came late.
    assert_eq!(passed, 150);
    assert_accounted(&world);
}

#[test]
fn a_change_on_another_server_takes_effect_when_it_is_known() {
    let (world, rule) = (World::new(2), minute(Algorithm::FixedWindow));
    warmed(&world, &rule);
    let [server, other] = &world.servers[..] else { panic!("two servers") };
    block_on(other.settle(&claim([Charge { shortcuts: Shortcuts::None, ..rule.charge(Ask::Reset, 0) }])));
    assert!(server.status(1).held > 0, "it does not know yet");
    assert_eq!(server.adjust(|_| None), 0);
    assert_eq!(server.adjust(|key| (key.scope().rule() == "rule").then_some(KeyAdjustment::Reset)), 1);
    assert_eq!((server.status(1).held, rule.left(&world)), (0, 10_000));
    assert_accounted(&world);
    // Used up: the store is left alone for a while, unless there is room again.
    block_on(other.settle(&claim([Charge { mode: Mode::Soft, shortcuts: Shortcuts::None, ..rule.take(10_000) }])));
    assert!(!passes(server, rule.take(1)));
    block_on(other.settle(&claim([Charge { shortcuts: Shortcuts::None, ..rule.charge(Ask::Credit, 10) }])));
    assert_eq!(reading(server, rule.take(1)).source, Source::Lease, "it refuses by itself");
    assert_eq!(server.adjust(|_| Some(KeyAdjustment::Credit)), 1);
    assert!(passes(server, rule.take(1)));
}

#[test]
fn purged_keys_are_given_back_and_the_store_decides_next() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    warmed(&world, &rule);
    let server = &world.servers[0];
    assert_eq!(server.purge(|key| key.scope().rule() == "other"), PurgedLeases::default());
    let held = server.status(1).held;
    assert_eq!(server.purge(|key| key.values() == [Value::Text("ada")]), PurgedLeases { keys: 1, units: held });
    assert_eq!(server.status(1).held, 0);
    block_on(server.maintain());
    assert_eq!(rule.left(&world), 9_950, "everything is given back");
    assert_eq!(reading(server, rule.take(1)).source, Source::Store);
    assert_accounted(&world);
}

#[test]
fn a_purge_ends_a_pause() {
    let (world, rule) = (World::new(1), Rule::new("rule", 100, 60, Algorithm::FixedWindow));
    let server = &world.servers[0];
    while passes(server, rule.take(1)) {}
    assert_eq!(reading(server, rule.take(1)).source, Source::Lease, "refused without the store");
    let _ = server.purge(|_| true);
    let next = reading(server, rule.take(1));
    assert_eq!((next.admits, next.source), (false, Source::Store));
}

/// Units that arrive or are put back after leases were switched off are given back, too.
#[test]
fn what_is_in_progress_when_leases_are_switched_off_is_given_back() {
    let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
    let exact = Rule::new("exact", 1, 60, Algorithm::FixedWindow).exact();
    warmed(&world, &rule);
    let server = &world.servers[0];
    assert!(passes(server, exact.take(1)));
    // One has reserved a unit, and will be refused. The other takes more than is held, and a chunk with it.
    world.shared.is_late.store(true, Ordering::Relaxed);
    let late = |charges| Claim { id: LATE, ..charges };
    let held = server.status(1).held;
    let claims = [late(claim([rule.take(1), exact.take(1)])), late(claim([rule.take(held)]))];
    let mut calls = claims.each_ref().map(|claim| Box::pin(server.settle(claim)));
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    server.set_enabled(false);
    block_on(server.maintain());
    world.shared.is_late.store(false, Ordering::Relaxed);
    let answers = calls.map(|call| block_on(call).readings[0].taken);
    assert_eq!(answers, [0, held]);
    assert_eq!(server.status(1).held, 1, "what was put back; what arrived is given back at once");
    block_on(server.maintain());
    assert_eq!((rule.left(&world), server.status(1).unspent), (9_950 - held, 0));
    assert_accounted(&world);
}

/// A call that the store settles now, and answers when it is not late any more.
fn begin_late<'a>(
    world: &World,
    server: &'a Server,
    claim: &'a Claim<'_>,
) -> std::pin::Pin<Box<impl Future<Output = Settlement> + 'a>> {
    world.shared.is_late.store(true, Ordering::Relaxed);
    let mut call = Box::pin(server.settle(claim));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    call
}

/// Units that were taken before a reset, and arrive or are put back after it, are not spent: the store no longer counts them.
#[test]
fn a_reset_voids_units_that_are_on_their_way() {
    let exact = Rule::new("exact", 1, 60, Algorithm::FixedWindow).exact();
    for remote in [false, true] {
        let (world, rule) = (World::new(2), minute(Algorithm::FixedWindow));
        warmed(&world, &rule);
        let [server, other] = &world.servers[..] else { panic!("two servers") };
        assert!(passes(server, exact.take(1)));
        let held = server.status(1).held;
        let refused = Claim { id: LATE, ..claim([rule.take(1), exact.take(1)]) };
        let with_chunk = Claim { id: LATE, ..claim([rule.take(held)]) };
        let calls = [&refused, &with_chunk].map(|claim| begin_late(&world, server, claim));
        let taken = 10_000 - rule.left(&world);
        assert!(taken > 50 + 2 * held, "a chunk is on its way");
        let reset = Charge { shortcuts: Shortcuts::None, ..rule.charge(Ask::Reset, 0) };
        block_on((if remote { other } else { server }).settle(&claim([reset])));
        if remote {
            assert_eq!(server.adjust(|_| Some(KeyAdjustment::Reset)), 1);
        }
        world.shared.is_late.store(false, Ordering::Relaxed);
        for call in calls {
            block_on(call);
        }
        assert_eq!((server.status(1).held, rule.left(&world)), (0, 10_000));
        let admitted = (0..20_000).filter(|_| passes(server, rule.take(1))).count();
        assert_eq!(admitted, 10_000, "after a reset as many as a new counter has");
        assert_accounted(&world);
    }
}

/// Units that arrive after a purge or a change of the limit are given back, and what came with them says nothing.
#[test]
fn units_that_arrive_after_a_purge_or_a_changed_limit_are_given_back() {
    for purges in [true, false] {
        let (world, rule) = (World::new(1), minute(Algorithm::FixedWindow));
        warmed(&world, &rule);
        let server = &world.servers[0];
        let held = server.status(1).held;
        let with_chunk = Claim { id: LATE, ..claim([rule.take(held + 1)]) };
        let call = begin_late(&world, server, &with_chunk);
        let lower = Rule { limit: rule.limit.with_amount(5_000), ..minute(Algorithm::FixedWindow) };
        match purges {
            true => drop(server.purge(|_| true)),
            false => assert!(passes(server, lower.take(1))),
        }
        world.shared.is_late.store(false, Ordering::Relaxed);
        assert!(block_on(call).readings[0].admits);
        assert_eq!(server.status(1).held, 0);
        block_on(server.maintain());
        let spent = 50 + held + 1 + u64::from(!purges);
        assert_eq!(rule.left(&world), 10_000 - spent, "what was not spent is given back");
        assert_accounted(&world);
    }
}

/// Everything that was taken ahead of demand is somewhere.
fn assert_accounted(world: &World) {
    for server in &world.servers {
        let status = server.status(0);
        let counts = status.counts;
        let known = counts.spent + counts.returned + counts.expired + counts.lost;
        assert!(counts.taken >= known && counts.taken <= known + status.unspent, "{status:?}");
    }
}

/// One step of a random run: the time since the last one, the server and the units.
fn steps() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let step = (
        prop_oneof![0..2_000u64, 0..40_000u64, 0..3_000_000u64],
        0..4usize,
        prop_oneof![9 => Just(1u64), 1 => 1..40u64],
    );
    proptest::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// A second counter, which spends when a request is admitted, never exceeds the limit.
    #[test]
    fn no_schedule_exceeds_a_limit(steps in steps(), which in 0..4usize, amount in 100..2_000u64, seconds in 1..20u64) {
        let algorithm = match ALGORITHMS[which] {
            Algorithm::Bucket { .. } => Algorithm::Bucket { burst: amount / 2 + 50, paced: false },
            other => other,
        };
        let (world, rule) = (World::new(4), Rule::new("rule", amount, seconds * 6, algorithm));
        let mut truth = [StateSlot::default()];
        let mut now = 0;
        for (gap, server, units) in steps {
            now += gap;
            world.at(now);
            if passes(&world.servers[server], rule.take(units)) {
                let spent = claim([rule.charge(Ask::Exactly, units)]);
                let truly = settle(&spent, &mut truth, START.after(Span::from_micros(now)));
                prop_assert!(truly.readings[0].admits, "over the limit after {now} µs: {truly:?}");
            }
        }
        assert_accounted(&world);
    }
}
