//! Scenarios that are part of the program, and what they are to show.

use tollgate_core::{Algorithm, GlobalTerms, Limit, LimitError, Period, Span};

use crate::goal::Goal;
use crate::scenario::{PlannedMode, PlannedRegions, Scenario};
use crate::worlds::random_world;

/// A set of scenarios.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in one sentence.
    pub about: &'static str,
    plans: fn(u64) -> Result<Vec<Plan>, LimitError>,
}

/// A scenario of a preset.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What sets it apart from the others.
    pub label: String,
    /// The scenario.
    pub scenario: Scenario,
    /// What it is to show.
    pub goals: Vec<Goal>,
}

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "exercise",
        about: "200 gateways share 10,000 requests a minute, at loads from 0.5 to 5",
        plans: exercise,
    },
    Preset { name: "hot", about: "1M requests a second of 100 keys on 500 servers", plans: hot },
    Preset { name: "s1", about: "1M requests a second of 5M keys by Zipf's law on 500 servers", plans: s1 },
    Preset {
        name: "s2",
        about: "5M requests a second of 100M keys on 1,000 servers, the busiest with 50,000",
        plans: s2,
    },
    Preset {
        name: "thresholds",
        about: "one key at 1,000 to 200,000 requests a second on 1,000 servers",
        plans: thresholds,
    },
    Preset {
        name: "regions",
        about: "three regions 40 ms apart with four servers each, and limits of each kind",
        plans: regions,
    },
    Preset {
        name: "random",
        about: "a small world with random limits, traffic and faults; another one for each seed",
        plans: random,
    },
];

/// The loads of the exercise: requests as a share of the limit.
const LOADS: [f64; 8] = [0.5, 0.8, 0.95, 1.02, 1.1, 1.2, 2.0, 5.0];
/// The least share of what an exact fleet admits.
const LEAST_ADMITTED: f64 = 0.99;

impl Preset {
    /// The preset of this name.
    pub fn find(name: &str) -> Option<Preset> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// Its scenarios with this seed.
    ///
    /// # Errors
    /// Never: the limits of all presets can be counted, which a test checks.
    pub fn plans(&self, seed: u64) -> Result<Vec<Plan>, LimitError> {
        let mut plans = (self.plans)(seed)?;
        for plan in &mut plans {
            plan.scenario.seed = seed;
        }
        Ok(plans)
    }
}

/// A limit of so many units a minute.
pub fn minute(amount: u64, algorithm: Algorithm) -> Result<Limit, LimitError> {
    Limit::new(amount, Period::fixed(Span::from_secs(60))?, algorithm)
}

fn windows_and_bucket(amount: u64) -> [Algorithm; 3] {
    [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::Bucket { burst: amount, paced: false },
    ]
}

fn is_bucket(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Bucket { .. })
}

fn exercise(_: u64) -> Result<Vec<Plan>, LimitError> {
    let mut plans = Vec::new();
    for algorithm in windows_and_bucket(10_000) {
        for load in LOADS {
            let label = format!("{} {load}", algorithm.name());
            let mut scenario = Scenario::new(&format!("exercise: {label}"), minute(10_000, algorithm)?);
            scenario.servers = 200;
            scenario.duration = Span::from_secs(600);
            scenario.traffic.rate = load * 10_000.0 / 60.0;
            let mut goals = vec![Goal::Admitted(LEAST_ADMITTED)];
            match algorithm {
                _ if load < 1.0 => {}
                Algorithm::FixedWindow => goals.push(Goal::CallsPerMinute(4_000.0)),
                Algorithm::SlidingWindow { .. } => goals.push(Goal::CallsPerMinute(10_000.0)),
                _ => {}
            }
            plans.push(Plan { label, scenario, goals });
        }
    }
    Ok(plans)
}

/// A fleet under much traffic.
fn busy(label: &str, limit: Limit, servers: u32, rate: f64) -> Scenario {
    let mut scenario = Scenario::new(label, limit);
    scenario.servers = servers;
    scenario.shards = 16;
    scenario.traffic.rate = rate;
    // Leases are there after a few seconds, and a minute ends in the measured time.
    (scenario.duration, scenario.warm_up) = (Span::from_secs(70), Span::from_secs(10));
    scenario
}

fn hot(_: u64) -> Result<Vec<Plan>, LimitError> {
    const RATE: f64 = 1e6;
    const KEYS: u64 = 100;
    let mut plans = Vec::new();
    for load in [0.5, 1.2] {
        let amount = (RATE * 60.0 / KEYS as f64 / load) as u64;
        for algorithm in windows_and_bucket(amount) {
            let label = format!("{} {load}", algorithm.name());
            let mut scenario = busy(&format!("hot: {label}"), minute(amount, algorithm)?, 500, RATE);
            scenario.traffic.keys = KEYS;
            if load > 1.0 {
                // To the end of a minute: what servers hold in the middle of one is spent later, and would be missing.
                scenario.duration = Span::from_secs(120);
            }
            let least = if is_bucket(algorithm) { 20.0 } else { 50.0 };
            plans.push(Plan { label, scenario, goals: vec![Goal::Admitted(LEAST_ADMITTED), Goal::Ratio(least)] });
        }
    }
    Ok(plans)
}

fn s1(_: u64) -> Result<Vec<Plan>, LimitError> {
    // So large that no key meets its limit: the bound is one of calls, not of refusals.
    const AMOUNT: u64 = 10_000_000;
    let plans = windows_and_bucket(AMOUNT).into_iter().map(|algorithm| {
        let label = algorithm.name().to_owned();
        let mut scenario = busy(&format!("s1: {label}"), minute(AMOUNT, algorithm)?, 500, 1e6);
        (scenario.traffic.keys, scenario.traffic.exponent) = (5_000_000, 1.0);
        scenario.counts_cold_keys = true;
        let share = if is_bucket(algorithm) { 0.6 } else { 0.7 };
        Ok(Plan { label, scenario, goals: vec![Goal::Admitted(LEAST_ADMITTED), Goal::ShareOfBound(share)] })
    });
    plans.chain(std::iter::once(s1_ahead())).collect()
}

/// The same keys with limits that some of them meet, and servers that may admit a part before the store counts it.
fn s1_ahead() -> Result<Plan, LimitError> {
    let mut scenario = busy("s1: ahead", minute(10_000, Algorithm::SlidingWindow { sub_windows: 1 })?, 500, 1e6);
    (scenario.traffic.keys, scenario.traffic.exponent) = (5_000_000, 1.0);
    // Every key has a counter, which takes memory: shorter than the others.
    (scenario.duration, scenario.warm_up) = (Span::from_secs(20), Span::from_secs(5));
    scenario.limits[0].ahead = Some(500);
    Ok(Plan { label: "ahead 5 %".to_owned(), scenario, goals: vec![Goal::Admitted(LEAST_ADMITTED), Goal::Ratio(10.0)] })
}

fn s2(_: u64) -> Result<Vec<Plan>, LimitError> {
    const AMOUNT: u64 = 6_000_000;
    let plans =
        [Algorithm::FixedWindow, Algorithm::Bucket { burst: AMOUNT, paced: false }].into_iter().map(|algorithm| {
            let label = algorithm.name().to_owned();
            let mut scenario = busy(&format!("s2: {label}"), minute(AMOUNT, algorithm)?, 1_000, 5e6);
            scenario.shards = 64;
            // With this exponent the busiest key has 1 % of the requests.
            (scenario.traffic.keys, scenario.traffic.exponent) = (100_000_000, 0.855);
            (scenario.duration, scenario.warm_up) = (Span::from_secs(30), Span::from_secs(10));
            scenario.counts_cold_keys = true;
            Ok(Plan { label, scenario, goals: vec![Goal::Admitted(LEAST_ADMITTED)] })
        });
    plans.collect()
}

fn thresholds(_: u64) -> Result<Vec<Plan>, LimitError> {
    let mut plans = Vec::new();
    for (rate, load) in [(1e3, 0.5), (1e4, 0.5), (5e4, 0.5), (2e5, 0.5), (2e5, 4.0)] {
        let amount = (rate * 60.0 / load) as u64;
        for algorithm in [Algorithm::FixedWindow, Algorithm::Bucket { burst: amount, paced: false }] {
            let label = format!("{} {rate}/s at {load}", algorithm.name());
            let mut scenario = busy(&format!("thresholds: {label}"), minute(amount, algorithm)?, 1_000, rate);
            scenario.shards = 1;
            let goals = vec![Goal::Admitted(LEAST_ADMITTED), Goal::CallsPerSecond(1_000.0)];
            plans.push(Plan { label, scenario, goals });
        }
    }
    Ok(plans)
}

fn regions(_: u64) -> Result<Vec<Plan>, LimitError> {
    let modes = [
        ("each", PlannedMode::Each),
        ("split", PlannedMode::Split),
        ("home", PlannedMode::Home(Some(0))),
        ("global", PlannedMode::Global(GlobalTerms::default())),
    ];
    let mut plans = Vec::new();
    for (name, mode) in modes {
        for load in [0.9, 3.0] {
            for algorithm in windows_and_bucket(10_000) {
                let label = format!("{name} {} {load}", algorithm.name());
                let mut scenario = Scenario::new(&format!("regions: {label}"), minute(10_000, algorithm)?);
                let regions = PlannedRegions::alike(3, 4, Span::from_micros(40_000));
                (scenario.servers, scenario.regions) = (12, Some(regions));
                scenario.limits[0].mode = mode;
                scenario.duration = Span::from_secs(180);
                scenario.traffic.rate = load * 10_000.0 / 60.0;
                scenario.network.deadline = Span::from_micros(120_000);
                // Debits are of units that servers took, of which they hold some.
                plans.push(Plan { label, scenario, goals: Vec::new() });
            }
        }
    }
    Ok(plans)
}

fn random(seed: u64) -> Result<Vec<Plan>, LimitError> {
    Ok(vec![Plan { label: "random world".to_owned(), scenario: random_world(seed), goals: Vec::new() }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_can_be_built() {
        for preset in PRESETS {
            let plans = preset.plans(1).unwrap();
            assert!(!plans.is_empty(), "{}", preset.name);
            assert!(plans.iter().all(|plan| plan.scenario.warm_up < plan.scenario.duration));
            assert!(Preset::find(preset.name).is_some());
        }
    }
}
