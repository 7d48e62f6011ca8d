//! Small random worlds, to find what nobody thought of.

use tollgate_core::{Algorithm, Limit, Period, Span};

use crate::random::Generator;
use crate::scenario::{Bursts, Fault, Lost, Network, PlannedFault, PlannedLimit, Routing, Scenario, Traffic};

/// The most requests of a world, on average.
const REQUESTS: f64 = 12_000.0;

/// A world that depends on the seed only: limits, servers, latencies, losses, pauses, crashes and clocks. None of its faults
/// lets the store forget, so that no limit may be exceeded.
pub fn random_world(seed: u64) -> Scenario {
    let random = &mut Generator::new(seed, 5);
    let (first, period, amount) = loop {
        let period = [1, 2, 5, 10, 60, 90, 7_200][random.below(7) as usize];
        let amount = [10, 40, 100, 500, 2_000, 20_000][random.below(6) as usize] + random.below(10);
        // Hardly anything happens in a small part of a long period.
        let amount = if period > 100 { amount * 100 } else { amount };
        if let Some(limit) = random_limit(random, period, amount) {
            break (limit, period, amount);
        }
    };
    let mut scenario = Scenario::new("random world", first);
    scenario.seed = seed;
    scenario.compares_counters = true;
    scenario.servers = random.between(1, 12) as u32;
    scenario.shards = random.between(1, 3) as u32;
    let keys = random.between(1, 4);
    let units = if random.chance(0.3) { (1, random.between(2, 5)) } else { (1, 1) };
    let load = [0.3, 0.8, 0.98, 1.05, 1.5, 4.0][random.below(6) as usize];
    let mean_units = (units.0 + units.1) as f64 / 2.0;
    let rate = load * amount as f64 * keys as f64 / period as f64 / mean_units;
    let most = period.min(90) * random.between(2, 4);
    let seconds = (REQUESTS / rate).ceil().clamp(1.0, most as f64) as u64;
    scenario.duration = Span::from_secs(seconds.max(2));
    scenario.traffic = Traffic {
        rate,
        keys,
        exponent: if random.chance(0.5) { random.unit() * 1.5 } else { 0.0 },
        routing: match random.below(3) {
            0 => Routing::Sticky(random.between(1, scenario.servers.into()) as u32),
            _ => Routing::Random,
        },
        bursts: random.chance(0.4).then(|| Bursts { on: millis(random, 50, 3_000), off: millis(random, 50, 5_000) }),
        moves: random.chance(0.3).then(|| millis(random, 200, 3_000)),
        units,
    };
    let shortest = millis(random, 0, 3);
    scenario.network = Network {
        round_trip: (shortest, Span::from_micros(shortest.as_micros() + random.between(0, 6_000))),
        drops: if random.chance(0.3) { random.unit() * 0.1 } else { 0.0 },
        deadline: millis(random, 6, 50),
    };
    scenario.clock_drift = if random.chance(0.5) { random.between(1, 500) as u32 } else { 0 };
    if random.chance(0.3) {
        let (period, amount) = (random.between(1, 10), random.between(20, 3_000));
        let limit = random_limit(random, period, amount);
        let (is_global, is_leased) = (random.chance(0.5), random.chance(0.7));
        scenario.limits.extend(limit.map(|limit| PlannedLimit { is_global, is_leased, ..PlannedLimit::new(limit) }));
    }
    let faults = if random.chance(0.5) { random.between(1, 4) } else { 0 };
    let end = scenario.duration.as_micros() / 1_000;
    for _ in 0..faults {
        let servers = random.between(1, scenario.servers.into()) as u32;
        let fault = match random.below(4) {
            0 => {
                let restart_after = random.chance(0.8).then(|| millis(random, 1, 2_000));
                Fault::Crash { servers, restart_after }
            }
            1 => Fault::Pause { servers, lasts: millis(random, 1, 4_000) },
            2 => {
                let lost = [Lost::Both, Lost::Requests, Lost::Answers][random.below(3) as usize];
                Fault::Partition { servers, lasts: millis(random, 1, 2_000), lost }
            }
            _ => Fault::Stall { lasts: millis(random, 1, 500) },
        };
        scenario.faults.push(PlannedFault { at: millis(random, 0, end - 1), fault });
    }
    scenario
}

fn millis(random: &mut Generator, least: u64, most: u64) -> Span {
    Span::from_micros(1_000 * random.between(least, most))
}

fn random_limit(random: &mut Generator, period: u64, amount: u64) -> Option<Limit> {
    let algorithm = match random.below(3) {
        0 => Algorithm::FixedWindow,
        1 => Algorithm::SlidingWindow { sub_windows: [1, 1, 2, 4, 5, 10][random.below(6) as usize] },
        _ => Algorithm::Bucket {
            burst: (amount as f64 * [0.1, 0.5, 1.0, 3.0][random.below(4) as usize]).max(5.0) as u64,
            paced: false,
        },
    };
    Limit::new(amount, Period::fixed(Span::from_secs(period)).ok()?, algorithm).ok()
}
