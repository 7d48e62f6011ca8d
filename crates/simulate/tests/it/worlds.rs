//! Promises that hold in every world.

use tollgate_simulate::presets::minute;
use tollgate_simulate::{Outcome, Scenario, random_world, simulate};

/// The worlds of a run. `WORLDS=10000` runs more of them.
fn worlds() -> u64 {
    std::env::var("WORLDS").ok().and_then(|worlds| worlds.parse().ok()).unwrap_or(200)
}

fn run(scenario: &Scenario) -> Outcome {
    simulate(scenario, &mut |_| {})
}

/// No limit is exceeded, all units are accounted for, and leases cost no more calls than they save.
#[test]
fn promises_hold_in_random_worlds() {
    let mut leased = 0;
    for seed in 1..=worlds() {
        let outcome = run(&random_world(seed));
        let repeat = format!("tollgate simulate random --seed {seed}");
        assert_eq!(outcome.violated, 0, "{repeat}: {:?}", outcome.violations);
        assert_eq!((outcome.excess, outcome.uncovered), (0, 0), "{repeat}");
        let calls = outcome.calls.total();
        assert!(calls as f64 <= 1.25 * outcome.requests as f64 + 10.0, "{repeat}: {calls} calls, {}", outcome.requests);
        leased += outcome.units.spent;
    }
    assert!(leased > 1_000 * worlds(), "only {leased} units were spent from leases");
}

/// The same seed has the same result, another one another.
#[test]
fn runs_depend_on_the_seed_only() {
    let figures = |seed| {
        let outcome = run(&random_world(seed));
        (outcome.requests, outcome.admitted, outcome.calls, outcome.units, outcome.moments)
    };
    assert_eq!(figures(7), figures(7));
    assert_ne!(figures(7), figures(8));
}

/// Without leases every request is a call, and what is admitted is what an exact fleet admits.
#[test]
fn without_leases_the_fleet_is_exact() {
    let mut scenario = Scenario::new("exact", minute(600, tollgate_core::Algorithm::FixedWindow).unwrap());
    scenario.servers = 5;
    scenario.traffic.rate = 20.0;
    scenario.leases = false;
    let outcome = run(&scenario);
    assert_eq!(outcome.calls.total(), outcome.requests);
    assert_eq!((outcome.local, outcome.admitted), (0, outcome.exact));
    assert_eq!(outcome.windows[0].admitted, 600);
}

/// Keys that are counted without counters change nothing that matters.
#[test]
fn cold_keys_need_no_counters() {
    let mut scenario = Scenario::new("cold keys", minute(5_000, tollgate_core::Algorithm::FixedWindow).unwrap());
    scenario.servers = 20;
    scenario.duration = tollgate_core::Span::from_secs(60);
    (scenario.traffic.rate, scenario.traffic.keys, scenario.traffic.exponent) = (2_000.0, 5_000, 1.0);
    let with_counters = run(&scenario);
    scenario.counts_cold_keys = true;
    let without = run(&scenario);
    let cold = without.calls.cold as f64 / without.requests as f64;
    assert!((0.3..0.9).contains(&cold), "{cold} of the requests are cold");
    assert_eq!(with_counters.calls.cold, 0);
    for (name, one, other) in [
        ("requests", with_counters.requests as f64, without.requests as f64),
        ("admitted", with_counters.admitted as f64, without.admitted as f64),
        ("calls", with_counters.calls.total() as f64, without.calls.total() as f64),
    ] {
        assert!((one / other - 1.0).abs() < 0.03, "{name}: {one} with counters, {other} without");
    }
}
