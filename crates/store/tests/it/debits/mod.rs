//! Debits between regions, each with a store in memory.

mod conform;
mod world;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Apart, Ask, Charge, Claim, GlobalTerms, Key, Mode, Once, RegionId, RegionLink, Scope, Source, Span,
    Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::debits::Routes;
use tollgate_store::leased::KeyAdjustment;
use tollgate_store::sharded::{MemoryShards, ShardFault};
use tollgate_store::{
    Circuit, DebitConfig, DebitOutbox, GuardConfig, Guarded, LeaseConfig, Leased, ManualClock, MemoryConfig,
    OtherRegion, Regions, Store,
};

use world::*;

#[test]
fn what_one_region_takes_counts_in_all_and_once() {
    let (world, rule) = (World::new(), Rule::window(100));
    assert!(world.take(0, &rule, "me", 30) && world.take(1, &rule, "me", 20));
    assert_eq!(world.used(&rule, "me"), [30, 20, 0]);
    for _ in 0..5 {
        world.skip(100);
        world.beat();
        // Nothing comes back as an echo.
        assert_eq!(world.used(&rule, "me"), [50, 50, 50]);
    }
    assert!(!world.take(2, &rule, "me", 51) && world.take(2, &rule, "me", 50));
    world.beat();
    assert_eq!(world.used(&rule, "me"), [100, 100, 100]);
    let status = world.status(0);
    assert_eq!(
        status.iter().map(|region| (&*region.region, region.units.sent)).collect::<Vec<_>>(),
        [("region 1", 30), ("region 2", 30)]
    );
    assert_eq!((status[0].lag.count(), status[0].lag.quantile(1.0)), (1, Some(0.1)));
}

#[test]
fn only_what_the_store_took_now_for_limits_of_all_regions_is_sent() {
    let (world, rule) = (World::new(), Rule::window(100));
    let other = Rule { scope: rule.scope.clone().with_global(None), limit: rule.limit.clone() };
    world.take(0, &other, "each", 10);
    world.settle(0, Charge { key: rule.take("home", 0).key.in_region(RegionId::new(1)), ..rule.take("home", 10) });
    assert!(!world.take(0, &rule, "refused", 101));
    world.settle(0, rule.take("peek", 0));
    let scope = Scope::for_records("d", "once", Home::Own);
    for _ in 0..3 {
        let once =
            Once { key: Key::new(&scope, smallvec![Value::Text("a")]), body: 1, terms: 0, keep: Span::from_secs(60) };
        let claim = Claim { once: Some(once), ..claim(rule.take("once", 7)) };
        block_on(world.servers[0].settle(&claim));
    }
    world.beat();
    for (caller, units) in [("each", 0), ("home", 0), ("refused", 0), ("peek", 0), ("once", 7)] {
        assert_eq!(world.used(&rule, caller)[1], units, "{caller}");
    }
    assert_eq!(world.status(0)[0].units.sent, 7);
}

#[test]
fn all_that_takes_units_is_sent_and_what_is_given_back_is_given_back() {
    let (world, rule) = (World::new(), Rule::window(100));
    for (ask, mode, units) in
        [(Ask::UpTo, Mode::Enforce, 90), (Ask::Regardless, Mode::Enforce, 20), (Ask::Exactly, Mode::Soft, 5)]
    {
        world.settle(0, Charge { ask, mode, ..rule.take("me", units) });
    }
    world.settle(0, Charge { ask: Ask::Return { taken_at: START }, ..rule.take("me", 15) });
    world.beat();
    assert_eq!(world.status(0)[0].units.sent, 100);
    world.settle(0, Charge { ask: Ask::Return { taken_at: START }, ..rule.take("me", 40) });
    world.beat();
    assert_eq!(world.used(&rule, "me"), [60, 60, 60]);
    let units = world.status(0)[0].units;
    assert_eq!((units.sent, units.returned, units.back), (100, 15, 40));
}

#[test]
fn little_used_counters_are_not_sent() {
    let world = World::new();
    let rule = Rule::new(1_000, Algorithm::FixedWindow, 3_600, GlobalTerms::default());
    for _ in 0..49 {
        world.take(0, &rule, "me", 1);
        world.skip(5_000);
        world.beat();
    }
    assert_eq!(world.used(&rule, "me"), [49, 0, 0]);
    assert_eq!((world.status(0)[0].waiting, world.status(0)[0].link), (1, RegionLink::Together));
    world.take(0, &rule, "me", 1);
    world.beat();
    assert_eq!(world.used(&rule, "me"), [50, 50, 50]);
}

/// A bucket that each region fills as fast as it drains counts for all: the regions together get its rate, not one each.
#[test]
fn buckets_limit_steady_traffic_of_all_regions() {
    for (amount, burst, debit_threshold) in [(100, 100, 500), (100, 5, 500), (1_000, 1_000, 0), (100, 20, 2_000)] {
        let world = World::new();
        let terms = GlobalTerms { debit_threshold, ..GlobalTerms::default() };
        let rule = Rule::new(amount, Algorithm::Bucket { burst, paced: false }, 1, terms);
        let (mut admitted, mut requests) = (0, 0);
        for step in 0..20_000 {
            for region in 0..REGIONS {
                // A little less than the limit in each region.
                let is_sent = (step * 9 * amount / 10_000) != ((step + 1) * 9 * amount / 10_000);
                requests += u64::from(is_sent);
                admitted += u64::from(is_sent && world.take(region, &rule, "me", 1));
            }
            world.skip(1);
            if step % 100 == 99 {
                world.beat();
            }
        }
        assert!(requests > 50 * amount);
        // What is replenished, the burst, what is taken within a beat, and what waits below the threshold.
        let hidden = 2 * (amount / 10 + burst * u64::from(debit_threshold) / 10_000);
        let bound = 20 * amount + burst + hidden;
        assert!(admitted <= bound, "{amount} {burst}: {admitted}, not {bound}");
        assert!(admitted >= 18 * amount, "{amount} {burst}: only {admitted}");
    }
}

#[test]
fn regions_that_are_apart_count_alone_or_their_share_and_converge() {
    let world = World::new();
    let share = GlobalTerms { apart: Apart::Share, debit_threshold: 0 };
    let rules = [Rule::window(90), Rule::new(90, Algorithm::FixedWindow, 3_600, share)];
    let callers = ["alone", "share"];
    world.set_ways(0, Way::Broken);
    world.beat();
    for (rule, (caller, expected)) in rules.iter().zip(callers.into_iter().zip([90, 30])) {
        let admitted = (0..100).filter(|_| world.take(0, rule, caller, 1)).count();
        assert_eq!(admitted, expected, "{caller}");
        let refused = world.settle(0, rule.take(caller, 1));
        assert_eq!((refused.link, refused.readings[0].admits), (RegionLink::Apart, false));
        assert_eq!(refused.used(&rule.take(caller, 1), &refused.readings[0]), expected as u64, "{caller}");
    }
    // The others are apart from it, too, and still together with each other.
    let links = |region: usize| world.status(region).iter().map(|other| other.link).collect::<Vec<_>>();
    assert_eq!(links(0), [RegionLink::Apart, RegionLink::Apart]);
    assert_eq!(links(1), [RegionLink::Together, RegionLink::Apart]);
    world.take(1, &rules[0], "alone", 5);
    for _ in 0..300 {
        world.skip(100);
        world.beat();
    }
    assert_eq!(world.used(&rules[0], "alone"), [90, 5, 5]);
    assert_eq!(world.status(0)[0].oldest, Span::from_secs(30));
    world.set_ways(0, Way::Open);
    world.beat();
    world.beat();
    assert_eq!(world.used(&rules[0], "alone").map(|used| used.min(90)), [90, 90, 90]);
    assert_eq!(world.used(&rules[1], "share"), [30, 30, 30]);
    assert_eq!(links(0), [RegionLink::Together, RegionLink::Together]);
    assert_eq!(world.settle(0, rules[1].take("share", 1)).link, RegionLink::Together);
    assert!(world.take(0, &rules[1], "share", 59));
}

#[test]
fn lag_lowers_limits_before_regions_are_apart() {
    let (world, rule) = (World::new(), Rule::window(90));
    let other = Rule { scope: rule.scope.clone().with_global(None), limit: rule.limit.clone() };
    assert!(world.take(0, &rule, "me", 7));
    world.beat();
    world.take(0, &rule, "first", 1);
    world.set_way(0, 1, Way::Cut);
    let mut left = Vec::new();
    for at in 0..24 {
        world.beat();
        let peek = world.settle(0, rule.take("me", 0));
        assert_eq!(peek.link == RegionLink::Together, at <= 5, "{at}");
        left.push(peek.readings[0].remaining);
        // Whatever the limit is lowered to, it is known how much is used.
        assert_eq!(peek.used(&rule.take("me", 0), &peek.readings[0]), 7, "{at}");
        let reset = Charge { ask: Ask::Reset, ..rule.take("nobody", 0) };
        let changed = world.settle(0, Charge { ask: reset.ask, ..rule.take("nobody", 0) });
        assert_eq!(changed.used(&reset, &changed.readings[0]), 0, "{at}");
        let peek = world.settle(0, other.take("me", 0));
        assert_eq!((peek.link, peek.used(&other.take("me", 0), &peek.readings[0])), (RegionLink::Together, 7));
        world.skip(100);
    }
    left.dedup();
    assert_eq!(left, [83, 73, 63, 53, 43, 33, 23, 83], "the share at last, then alone");
    world.set_way(0, 1, Way::Open);
    world.beat();
    assert_eq!(world.settle(0, rule.take("me", 0)).link, RegionLink::Together);
}

#[test]
fn an_answer_says_how_regions_were_when_its_limits_were_chosen() {
    let (world, rule) = (World::new(), Rule::window(90));
    let claim = claim(rule.take("me", 7));
    let mut answer = block_on(world.servers[0].settle(&claim));
    world.set_way(0, 1, Way::Broken);
    world.beat();
    world.servers[0].note_link(&claim, &mut answer);
    assert_eq!((answer.link, answer.used(&claim.charges[0], &answer.readings[0])), (RegionLink::Together, 7));
    // What is leased was not settled now.
    answer.readings[0].source = Source::Lease;
    world.servers[0].note_link(&claim, &mut answer);
    assert_eq!(answer.link, RegionLink::Apart);
}

#[test]
fn a_lowered_limit_changes_neither_what_is_sent_nor_how_it_drains() {
    let world = World::new();
    let terms = GlobalTerms { apart: Apart::Share, debit_threshold: 0 };
    let rule = Rule::new(90, Algorithm::Bucket { burst: 90, paced: false }, 90, terms);
    world.set_ways(0, Way::Broken);
    world.beat();
    assert!(world.take(0, &rule, "me", 30) && !world.take(0, &rule, "me", 1));
    world.skip(10_000);
    world.set_ways(0, Way::Open);
    world.beat();
    // One drains in a second, from two seconds on.
    assert_eq!(world.used(&rule, "me")[1], 22);
    assert_eq!(world.status(0)[0].units.aged, 8);
}

#[test]
fn a_debit_without_an_answer_is_not_repeated() {
    for (way, arrived) in [(Way::Lost, 0), (Way::Mute, 10)] {
        let (world, rule) = (World::new(), Rule::window(100));
        world.set_way(0, 1, way);
        world.take(0, &rule, "me", 10);
        world.beat();
        world.set_way(0, 1, Way::Open);
        for _ in 0..3 {
            world.beat();
        }
        assert_eq!(world.used(&rule, "me"), [10, arrived, 10], "{way:?}");
        let units = world.status(0)[0].units;
        assert_eq!((units.sent, units.unsure), (0, 10));
    }
}

#[test]
fn a_reset_drops_what_waits() {
    let (world, rule) = (World::new(), Rule::window(100));
    world.take(0, &rule, "me", 10);
    world.settle(0, Charge { ask: Ask::Reset, ..rule.take("me", 0) });
    world.take(0, &rule, "me", 3);
    world.beat();
    assert_eq!(world.used(&rule, "me"), [3, 3, 3]);
}

/// A full outbox is sent within ten seconds once the way is free.
#[test]
fn a_full_outbox_is_sent_within_ten_seconds() {
    const CALLERS: u64 = 100_000;
    let (world, rule) = (World::new(), Rule::window(100));
    world.set_way(0, 1, Way::Broken);
    for caller in 0..CALLERS {
        assert!(world.take(0, &rule, &caller.to_string(), 1));
        if caller % 1_000 == 999 {
            block_on(world.servers[0].maintain());
            world.skip(10);
        }
    }
    let toward = |world: &World| world.status(0).swap_remove(0);
    assert_eq!((toward(&world).waiting, toward(&world).units.dropped), (CALLERS as usize, 0));
    world.set_way(0, 1, Way::Open);
    let mut beats = 0;
    while toward(&world).waiting > 0 {
        world.skip(100);
        block_on(world.servers[0].maintain());
        beats += 1;
        assert!(beats <= 100, "{} wait after {beats} beats", toward(&world).waiting);
    }
    assert_eq!((toward(&world).units.sent, toward(&world).link), (CALLERS, RegionLink::Together));
}

/// What the other servers of the region do when they read of a reset.
#[test]
fn a_reset_on_another_server_drops_what_waits() {
    let (world, rule) = (World::new(), Rule::window(100));
    let low =
        Rule::new(100, Algorithm::FixedWindow, 3_600, GlobalTerms { debit_threshold: 5_000, ..Default::default() });
    world.set_way(0, 1, Way::Broken);
    world.take(0, &rule, "due", 10);
    world.take(0, &low, "low", 10);
    world.take(0, &low, "other", 10);
    world.beat();
    let is_reset = |key: &Key<'_>| key.values() != [Value::Text("other")];
    let adjust = |adjustment| block_on(world.servers[0].adjust(|key| is_reset(key).then_some(adjustment)));
    assert_eq!((adjust(KeyAdjustment::Credit), adjust(KeyAdjustment::Reset), adjust(KeyAdjustment::Reset)), (0, 2, 0));
    world.set_way(0, 1, Way::Open);
    world.take(0, &low, "low", 30);
    world.take(0, &low, "low", 30);
    world.beat();
    assert_eq!(world.used(&rule, "due"), [10, 0, 10]);
    assert_eq!(world.used(&low, "low"), [70, 60, 60]);
    assert!(world.servers[0].has_keys() && !world.servers[1].has_keys());
}

#[test]
fn leases_send_what_they_took_and_did_not_give_back() {
    let (world, rule) = (World::new(), Rule::window(100_000));
    let leased = Leased::with_clock(&world.servers[0], LeaseConfig::default(), world.clock.clone());
    for _ in 0..2_000 {
        block_on(leased.settle(&claim(rule.take("me", 1))));
        world.skip(1);
        block_on(leased.maintain());
    }
    world.beat();
    let [here, there, _] = world.used(&rule, "me");
    assert!(here == there && here > 2_000, "{here} {there}");
    block_on(leased.stop());
    world.beat();
    assert_eq!(world.used(&rule, "me"), [2_000, 2_000, 2_000]);
}

/// A way, and what happens on it.
fn ways() -> impl Strategy<Value = Way> {
    prop_oneof![3 => Just(Way::Open), 2 => Just(Way::Cut), 1 => Just(Way::Broken), 1 => Just(Way::Lost), 1 => Just(Way::Mute)]
}

#[derive(Clone, Debug)]
enum Event {
    Take { region: usize, caller: usize, units: u64 },
    Way { from: usize, to: usize, way: Way },
    Skip { millis: u64 },
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..REGIONS, 0..4usize, 1..40u64)
            .prop_map(|(region, caller, units)| Event::Take { region, caller, units }),
        1 => (0..REGIONS, 1..REGIONS, ways())
            .prop_map(|(from, step, way)| Event::Way { from, to: (from + step) % REGIONS, way }),
        3 => prop_oneof![1..100u64, 1..3_000u64].prop_map(|millis| Event::Skip { millis }),
    ]
}

proptest! {
    /// Whatever happens on the ways, no region counts a unit twice; and when they are open again, all that is not known to
    /// be lost is counted everywhere.
    #[test]
    fn no_unit_counts_twice(history in prop::collection::vec(events(), 1..80)) {
        let (world, rule) = (World::new(), Rule::window(100_000));
        let callers = ["a", "b", "c", "d"];
        let mut taken: HashMap<(usize, usize), u64> = HashMap::new();
        let sum = |taken: &HashMap<(usize, usize), u64>, at: usize| -> u64 {
            taken.iter().filter(|((caller, _), _)| *caller == at).map(|(_, units)| units).sum()
        };
        for event in &history {
            match event {
                Event::Take { region, caller, units } => {
                    if world.take(*region, &rule, callers[*caller], *units) {
                        *taken.entry((*caller, *region)).or_default() += units;
                    }
                }
                Event::Way { from, to, way } => world.set_way(*from, *to, *way),
                Event::Skip { millis } => {
                    world.skip(*millis);
                    world.beat();
                }
            }
            for (at, caller) in callers.iter().enumerate() {
                for used in world.used(&rule, caller) {
                    prop_assert!(used <= sum(&taken, at), "{} of {}", used, sum(&taken, at));
                }
            }
        }
        (0..REGIONS).for_each(|region| world.set_ways(region, Way::Open));
        world.beat();
        let mut missing = [0; REGIONS];
        for (at, caller) in callers.iter().enumerate() {
            for (region, used) in world.used(&rule, caller).into_iter().enumerate() {
                missing[region] += sum(&taken, at) - used;
            }
        }
        let unsure = |from: usize, to: usize| world.status(from)[(to + REGIONS - from) % REGIONS - 1].units.unsure;
        for (to, missing) in missing.into_iter().enumerate() {
            let unsure: u64 = (0..REGIONS).filter(|from| *from != to).map(|from| unsure(from, to)).sum();
            prop_assert!(missing <= unsure, "{} of {}", missing, unsure);
        }
    }
}

/// A node of another region that is away costs what it counts, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_does_not_cut_off_its_region() {
    let (clock, rule) = (ManualClock::at(START), Rule::window(1_000));
    let west = MemoryShards::new(4, 1_024, clock.clone());
    let other = OtherRegion { name: "west".to_owned(), store: west.clone(), deadline: Duration::from_millis(50) };
    let regions = Regions::new(MemoryShards::new(1, 1_024, clock.clone()), [other]);
    let guard = Arc::new(Guarded::with_clock(regions, GuardConfig::default(), clock.clone()));
    let others = vec![(RegionId::new(1), "west".to_owned())];
    let server = DebitOutbox::with_clock(guard.clone(), guard.clone(), DebitConfig::default(), others, clock.clone());
    let callers: Vec<String> = (0..40).map(|number| format!("caller {number}")).collect();
    west.nodes()[0].set_fault(ShardFault::Unreachable);
    for _ in 0..20 {
        for caller in &callers {
            server.settle(&claim(rule.take(caller, 1))).await;
        }
        server.maintain().await;
        clock.set(tollgate_store::Clock::now(&clock).after(Span::from_micros(100_000)));
    }
    assert!(!guard.is_whole(RegionId::new(1)));
    assert_eq!(server.status()[0].link, RegionLink::Apart);
    let used = |caller: &String| 1_000 - west.peek(&rule.take(caller, 0)).remaining;
    let counted: Vec<u64> = callers.iter().map(used).collect();
    let away = counted.iter().filter(|used| **used == 0).count();
    assert!((1..20).contains(&away) && counted.iter().all(|used| [0, 20].contains(used)), "{counted:?}");
    assert_eq!(server.status()[0].units.unsure, 0);
}

/// Calls for limits with a home fail where the way takes longer than their deadline. Debits have more time, and go on.
#[tokio::test(start_paused = true)]
async fn a_region_that_answers_claims_too_late_gets_debits() {
    let (clock, rule) = (ManualClock::at(START), Rule::window(1_000));
    let shards = [1, 1].map(|count| MemoryShards::new(count, 1_024, clock.clone()));
    let (west, deadline) = (RegionId::new(1), Duration::from_millis(50));
    let other = OtherRegion { name: "west".to_owned(), store: shards[1].clone(), deadline };
    let regions = Regions::new(shards[0].clone(), [other]);
    let guard = Arc::new(Guarded::with_clock(regions, GuardConfig::default(), clock.clone()));
    let others = vec![(west, "west".to_owned())];
    let server = DebitOutbox::with_clock(guard.clone(), guard.clone(), DebitConfig::default(), others, clock.clone());
    let pass = || clock.set(tollgate_store::Clock::now(&clock).after(Span::from_micros(100_000)));
    shards[1].nodes()[0].set_fault(ShardFault::Slow(Duration::from_millis(80)));
    let at_home = rule.take("at home", 1);
    let claim_at_home = claim(Charge { key: at_home.key.in_region(west), ..at_home });
    for taken in 1..=20 {
        guard.settle(&claim_at_home).await;
        server.settle(&claim(rule.take("me", 1))).await;
        server.maintain().await;
        let [status] = &server.status()[..] else { panic!("there is one other region") };
        assert_eq!((status.link, status.units.sent, status.waiting), (RegionLink::Together, taken, 0));
        pass();
    }
    let circuit = |guard: &Guarded<_, _>| guard.status().shards.last().map(|shard| shard.circuit);
    assert_eq!(circuit(&guard), Some(Circuit::Open));
    // If it does not answer debits either, they wait, and the regions are apart.
    shards[1].nodes()[0].set_fault(ShardFault::Unreachable);
    for _ in 0..10 {
        server.settle(&claim(rule.take("me", 1))).await;
        server.maintain().await;
        pass();
    }
    assert!(!guard.is_whole(west));
    assert_eq!((server.status()[0].link, server.status()[0].units.unsure), (RegionLink::Apart, 0));
}

/// The guarded store as the way to other regions.
#[tokio::test(start_paused = true)]
async fn debits_take_the_way_of_the_store() {
    let (clock, rule) = (ManualClock::at(START), Rule::window(100));
    let shards = [1, 1].map(|count| MemoryShards::new(count, 1_024, clock.clone()));
    let deadline = Duration::from_millis(50);
    let other = OtherRegion { name: "west".to_owned(), store: shards[1].clone(), deadline };
    let regions = Regions::new(shards[0].clone(), [other]);
    let guard = Arc::new(Guarded::with_clock(regions, GuardConfig::default(), clock.clone()));
    let west = RegionId::new(1);
    let others = vec![(west, "west".to_owned())];
    let server = DebitOutbox::with_clock(guard.clone(), guard.clone(), DebitConfig::default(), others, clock.clone());
    let used = || 100 - shards[1].peek(&rule.take("me", 0)).remaining;
    server.settle(&claim(rule.take("me", 10))).await;
    server.maintain().await;
    assert_eq!(used(), 10);

    // Failures open the breaker, as those of claims do. What was not settled waits.
    shards[1].nodes()[0].set_fault(ShardFault::Unreachable);
    server.settle(&claim(rule.take("me", 10))).await;
    for _ in 0..5 {
        server.maintain().await;
        clock.set(tollgate_store::Clock::now(&clock).after(Span::from_micros(100_000)));
    }
    assert!(!guard.is_whole(west) && guard.is_whole(RegionId::HERE));
    let calls = shards[1].nodes()[0].calls();
    server.maintain().await;
    assert_eq!((shards[1].nodes()[0].calls(), server.status()[0].link), (calls, RegionLink::Apart));
    assert_eq!((used(), server.status()[0].waiting, server.status()[0].units.unsure), (10, 1, 0));
}

#[test]
fn without_other_regions_nothing_is_recorded() {
    let clock = ManualClock::at(START);
    let store: Memory = Arc::new(MemoryConfig::default().build_with(clock.clone()));
    let courier = TestCourier { stores: Vec::new(), ways: Vec::new() };
    let server = DebitOutbox::with_clock(store, courier, DebitConfig::default(), Vec::new(), clock);
    let rule = Rule::window(10);
    let settlement = block_on(server.settle(&claim(rule.take("me", 1))));
    block_on(server.maintain());
    assert_eq!((settlement.readings[0].source, settlement.link), (Source::Store, RegionLink::Together));
    assert!(server.status().is_empty());
}
