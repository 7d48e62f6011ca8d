//! Several regions: what each mode of a limit lets through, which is at most its bound in docs/regions.md, and nearly that.

use tollgate_core::{Algorithm, Apart, GlobalTerms, Limit, Period, Span};
use tollgate_simulate::presets::Preset;
use tollgate_simulate::{Bursts, Fault, Lost, Outcome, PlannedFault, PlannedMode, PlannedRegions, Scenario, simulate};

const REGIONS: usize = 3;
/// Of each limit, in ten seconds.
const AMOUNT: u64 = 200;
const PERIOD: u64 = 10;
const FIXED: Algorithm = Algorithm::FixedWindow;
const SLIDING: Algorithm = Algorithm::SlidingWindow { sub_windows: 1 };

/// One limit in three regions with two servers each.
struct World {
    mode: PlannedMode,
    algorithm: Algorithm,
    /// The time that a message from one region to another takes, in milliseconds.
    way: u64,
    /// Requests in each region, as a multiple of what the limit admits in all.
    demand: f64,
}

impl World {
    fn scenario(&self, seed: u64) -> Scenario {
        let limit = Limit::new(AMOUNT, Period::fixed(Span::from_secs(PERIOD)).unwrap(), self.algorithm).unwrap();
        let mut scenario = Scenario::new("regions", limit);
        let regions = PlannedRegions::alike(REGIONS, 2, millis(self.way));
        scenario.seed = seed;
        scenario.servers = 2 * REGIONS as u32;
        scenario.regions = Some(regions);
        scenario.limits[0].mode = self.mode;
        scenario.traffic.rate = REGIONS as f64 * self.demand * AMOUNT as f64 / PERIOD as f64;
        // Other regions answer in time.
        scenario.network.deadline = millis(2 * self.way + 8);
        scenario.duration = Span::from_secs(12);
        scenario.leases = seed.is_multiple_of(2);
        if seed.is_multiple_of(3) {
            scenario.traffic.bursts = Some(Bursts { on: millis(1_500), off: millis(1_000) });
        }
        scenario
    }

    fn run(&self, seed: u64) -> Outcome {
        run(&self.scenario(seed))
    }
}

fn millis(millis: u64) -> Span {
    Span::from_micros(1_000 * millis)
}

fn run(scenario: &Scenario) -> Outcome {
    let outcome = simulate(scenario, &mut |_| {});
    assert_eq!(outcome.violated, 0, "{:?} of {scenario:?}", outcome.violations);
    outcome
}

fn bucket(burst: u64) -> Algorithm {
    Algorithm::Bucket { burst, paced: false }
}

fn algorithms() -> [Algorithm; 4] {
    [FIXED, SLIDING, bucket(AMOUNT), bucket(AMOUNT / 10)]
}

fn global(debit_threshold: u16) -> PlannedMode {
    PlannedMode::Global(GlobalTerms { apart: Apart::Alone, debit_threshold })
}

/// No more than the bound of `global` in any of these seeds, and nearly that in one world of each algorithm.
fn global_bounds(seeds: u64) {
    println!("| algorithm | way | demand | threshold | leases | over the limit | bound |");
    for algorithm in algorithms() {
        let mut nearest: f64 = 0.0;
        for way in [50, 1_000, 5_000] {
            for (demand, threshold) in [(1.0, 0), (3.0, 500), (30.0, 0)] {
                let world = World { mode: global(threshold), algorithm, way, demand };
                // With leases, which have another bound, and without.
                for leases in [false, true] {
                    let (mut worst, mut bound) = (0, 0);
                    for seed in 1..=seeds {
                        let scenario = Scenario { leases, ..world.scenario(seed) };
                        worst = worst.max(run(&scenario).excess);
                        bound = scenario.allowed_excess(0);
                    }
                    let leased = if leases { "leases" } else { "" };
                    println!("| {algorithm:?} | {way} ms | {demand} | {threshold} | {leased} | {worst} | {bound} |");
                    nearest = nearest.max(worst as f64 / bound as f64);
                }
            }
        }
        assert!(nearest >= 0.8, "{algorithm:?}: at most {nearest} of a bound");
    }
}

/// However many servers divide a region's requests among them, and however steadily these come, the others hear of them: a bucket
/// that drains as fast as it fills gets the rate of the limit in all regions, and what the threshold adds.
#[test]
fn the_number_of_servers_hides_no_units() {
    const TIMES: u64 = 6;
    let algorithm = bucket(AMOUNT);
    for servers in [1, 4, 20, 100] {
        for demand in [0.6, 0.8] {
            let mut scenario = World { mode: global(500), algorithm, way: 20, demand }.scenario(1);
            let count = REGIONS as u32 * servers;
            scenario.regions = Some(PlannedRegions::alike(REGIONS, servers, millis(20)));
            (scenario.servers, scenario.duration) = (count, Span::from_secs(TIMES * PERIOD));
            scenario.traffic.bursts = None;
            let admitted = admitted(&run(&scenario));
            let requested = (REGIONS as f64 * demand * (TIMES * AMOUNT) as f64) as u64;
            let most = most(algorithm, AMOUNT, TIMES * PERIOD) + scenario.allowed_excess(0);
            println!("| {servers} | {demand} | {admitted} of {requested} | {most} |");
            assert!(admitted <= most, "{servers} servers, {demand}: {admitted} of {most}");
            assert!(admitted >= requested.min(TIMES * AMOUNT) * 9 / 10, "{servers} servers, {demand}: {admitted}");
        }
    }
}

/// Units that all regions together admit.
fn admitted(outcome: &Outcome) -> u64 {
    outcome.windows.iter().map(|window| window.admitted).sum()
}

/// The most that a limit admits in the first so many seconds.
fn most(algorithm: Algorithm, amount: u64, seconds: u64) -> u64 {
    match algorithm {
        Algorithm::Bucket { burst, .. } => burst * amount / AMOUNT + amount * seconds / PERIOD,
        // Requests come as long as the window slides.
        SLIDING => amount * seconds / PERIOD,
        _ => amount * seconds.div_ceil(PERIOD),
    }
}

/// Modes without debits admit no more than the limit, or that in each region; and that, if there are requests for it.
fn exact_bounds(seeds: u64) {
    println!("| mode | algorithm | demand | admitted | most |");
    for mode in [PlannedMode::Each, PlannedMode::Split, PlannedMode::Home(None), PlannedMode::Home(Some(1))] {
        for algorithm in algorithms() {
            for demand in [1.0, 3.0, 30.0] {
                let world = World { mode, algorithm, way: 50, demand };
                let each = if mode == PlannedMode::Each { REGIONS as u64 } else { 1 };
                // A unit more for each counter, whose share of a sliding window is rounded.
                let most = each * most(algorithm, AMOUNT, 12) + REGIONS as u64;
                for seed in 1..=seeds {
                    let outcome = world.run(seed);
                    let admitted = admitted(&outcome);
                    assert_eq!(outcome.excess, 0, "{mode:?} {algorithm:?} {demand}, seed {seed}");
                    assert!(admitted <= most, "{mode:?} {algorithm:?} {demand}, seed {seed}: {admitted} of {most}");
                    if seed == 1 {
                        println!("| {mode:?} | {algorithm:?} | {demand} | {admitted} | {most} |");
                        assert!(demand < 30.0 || admitted as f64 >= 0.8 * most as f64, "{mode:?} {algorithm:?}");
                    }
                }
            }
        }
    }
}

/// Regions that can't reach each other for five seconds, in all ways that messages get lost.
fn partitions(seeds: u64) {
    for algorithm in [FIXED, bucket(AMOUNT)] {
        for lost in [Lost::Both, Lost::Requests, Lost::Answers] {
            for is_one_way in [false, true] {
                for seed in 1..=seeds {
                    let world = World { mode: global(0), algorithm, way: 20, demand: 3.0 };
                    let mut scenario = world.scenario(seed);
                    let ways = [(0, 1), (0, 2), (1, 0), (2, 0)].into_iter().take(if is_one_way { 2 } else { 4 });
                    let separate = |(from, to)| Fault::Separate { from, to, lasts: Span::from_secs(5), lost };
                    let planned = ways.map(|way| PlannedFault { at: millis(500), fault: separate(way) });
                    scenario.faults = planned.collect();
                    let outcome = run(&scenario);
                    // Whatever happened before, each region has heard of the others now.
                    assert!(outcome.excess > 0 || lost == Lost::Answers, "{algorithm:?} {lost:?}");
                    let alone = admitted(&outcome);
                    scenario.limits[0].mode =
                        PlannedMode::Global(GlobalTerms { apart: Apart::Share, debit_threshold: 0 });
                    assert!(admitted(&run(&scenario)) <= alone + AMOUNT / 10, "{algorithm:?} {lost:?}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn global_limits_are_exceeded_by_the_bound_and_no_more() {
    global_bounds(1);
}

#[test]
fn other_modes_admit_no_more_than_they_say() {
    exact_bounds(1);
}

#[test]
fn partitions_cost_no_more_than_they_may() {
    partitions(1);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn slow_limits_hold_their_bounds_for_many_seeds() {
    global_bounds(200);
    exact_bounds(50);
    partitions(50);
}

#[test]
fn the_preset_shows_nothing_wrong() {
    let plans = Preset::find("regions").unwrap().plans(1).unwrap();
    assert_eq!(plans.len(), 24);
    for plan in plans {
        let outcome = run(&Scenario { duration: Span::from_secs(10), ..plan.scenario });
        assert!(outcome.admitted > 1_000 && outcome.unanswered == 0, "{}: {}", plan.label, outcome.unanswered);
    }
}

/// A counter in another region, 20 to 80 ms away: most checks of a busy key are answered without it.
#[test]
fn leases_answer_most_checks_of_a_counter_in_another_region() {
    for (algorithm, load, least) in
        [(FIXED, 0.9, 0.95), (FIXED, 1.0, 0.95), (SLIDING, 0.9, 0.84), (SLIDING, 1.0, 0.84), (SLIDING, 1.05, 0.84)]
    {
        let limit = Limit::new(10_000, Period::fixed(Span::from_secs(60)).unwrap(), algorithm).unwrap();
        let mut scenario = Scenario::new("home", limit);
        scenario.servers = 20;
        scenario.duration = Span::from_secs(120);
        scenario.traffic.rate = load * 10_000.0 / 60.0;
        scenario.network.round_trip = (millis(20), millis(80));
        scenario.network.deadline = millis(200);
        let outcome = run(&scenario);
        let local = outcome.local as f64 / outcome.requests as f64;
        println!("{algorithm:?} at {load}: {local:.3} in the region, {:.4} of exact", outcome.against_exact());
        assert_eq!(outcome.excess, 0);
        assert!(local >= least, "{algorithm:?} at {load}: only {local}");
        assert!(outcome.against_exact() >= 0.98, "{algorithm:?} at {load}: {}", outcome.against_exact());
    }
}

/// With `apart: share`, each region admits by its whole limit until it knows that it is apart: all together may admit what passes
/// in that time beyond the limit, and then no more than the limit. Without units left, nothing is debited from which it could know
/// it: then that time goes on in the next period.
#[test]
fn apart_with_shares_admits_the_limit_when_regions_know_it() {
    const LASTS: u64 = 4;
    for (algorithm, demand) in [(FIXED, 0.5), (FIXED, 1.0), (FIXED, 3.0), (FIXED, 30.0)] {
        let mode = PlannedMode::Global(GlobalTerms { apart: Apart::Share, debit_threshold: 0 });
        let mut scenario = World { mode, algorithm, way: 20, demand }.scenario(1);
        scenario.traffic.bursts = None;
        scenario.duration = Span::from_secs(LASTS * PERIOD);
        let ways = (0..REGIONS).flat_map(|from| (0..REGIONS).filter(move |to| *to != from).map(move |to| (from, to)));
        let lasts = Span::from_secs(2 * LASTS * PERIOD);
        let separate = |(from, to)| Fault::Separate { from, to, lasts, lost: Lost::Both };
        scenario.faults = ways.map(|way| PlannedFault { at: Span::ZERO, fault: separate(way) }).collect();
        let outcome = run(&scenario);
        // Without what was answered after the end.
        let admitted: Vec<u64> = outcome.windows.iter().take(LASTS as usize).map(|window| window.admitted).collect();
        // The beat, and the time after which limits are as low as they get.
        let taken = demand * AMOUNT as f64 / PERIOD as f64 * 2.3;
        let taken = taken + 4.0 * taken.sqrt();
        let first = AMOUNT + (REGIONS as u64 - 1) * AMOUNT.min(taken as u64);
        println!("{algorithm:?} at {demand}: {admitted:?}, {first} at first");
        let (unknown, known) = admitted.split_at(2);
        assert!(unknown.iter().all(|admitted| *admitted <= first), "{algorithm:?} at {demand}: {admitted:?}, {first}");
        assert!(known.iter().all(|admitted| *admitted <= AMOUNT), "{algorithm:?} at {demand}: {admitted:?}");
        assert!(demand < 30.0 || admitted[0] == REGIONS as u64 * AMOUNT, "{admitted:?}");
    }
}
