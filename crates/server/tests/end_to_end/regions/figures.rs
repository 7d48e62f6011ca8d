//! How long checks take in three regions, one of which goes away. Prints what it measures.

use tollgate_core::Source;
use tollgate_testing::{machine, until};

use super::{DELAY, World};
use crate::fleet::load::{Check, CheckResult, Load, Plan, Sample};

const RULES: &str = "domain: fleet
entity: user
rules:
  - {name: home, key: [user], match: {kind: home}, limit: 1000000/year, algorithm: fixed_window, region: {home: us-east}, lease: off}
  - {name: plain, key: [user], match: {kind: plain}, limit: 1000000/year, algorithm: fixed_window, lease: off}
";
/// Requests a second to each of two servers, and how many of them are measured at a time.
const RATE: u64 = 100;
const MEASURED: u64 = 20 * RATE;

fn load(world: &World, kind: &'static str) -> Load {
    let addresses = world.addresses();
    let servers = vec![addresses[0].clone(), addresses[2].clone()];
    let checks = (0..10).map(|user| Check { user: format!("user {user}"), kind }).collect();
    Load::start(Plan { servers, checks, rate: 2 * RATE })
}

/// Waits for more samples, prints how long they took and returns those that the store did not admit.
fn measure(load: &Load, what: &str) -> Vec<Sample> {
    let before = load.samples().len();
    load.wait_for_more(2 * MEASURED);
    let samples = load.samples().split_off(before);
    let mut micros: Vec<u64> = samples.iter().map(|sample| sample.ended - sample.started).collect();
    micros.sort_unstable();
    let [p50, p99] = [50, 99].map(|share| micros[(micros.len() - 1) * share / 100] as f64 / 1_000.0);
    println!("{what}: {} checks, p50 {p50:.1} ms, p99 {p99:.1} ms", micros.len());
    let is_by_store =
        |sample: &Sample| matches!(sample.result, CheckResult::Decided { allowed: true, source: Source::Store });
    samples.into_iter().filter(|sample| !is_by_store(sample)).collect()
}

#[test]
#[ignore = "takes more than two minutes alone: make test-long"]
fn slow_a_region_that_is_away_delays_no_other() {
    machine::alone();
    let mut world = World::start(RULES, 1, &["--store-deadline", "1s", "--region-deadline", "500ms"]);
    let east = 1;
    let connected = |server: usize| {
        matches!(world.check(server, "warm-up", "home"), CheckResult::Decided { source: Source::Store, .. })
    };
    until("the home is reached", || connected(0) && connected(2));

    let far = load(&world, "home");
    measure(&far, "warm-up");
    let errors = measure(&far, &format!("home, with a round trip of {} ms", 2 * DELAY.as_millis()));
    assert!(errors.is_empty(), "{errors:?}");
    drop(far.stop());

    let near = load(&world, "plain");
    measure(&near, "warm-up");
    let mut errors = measure(&near, "in the region, all regions together");
    let home = load(&world, "home");
    errors.extend(measure(&near, "in the region, and as many checks of the home"));
    world.relays[east].stall();
    errors.extend(measure(&near, "in the region, another one stalled"));
    world.relays[east].pass();
    world.redis[east].kill();
    errors.extend(measure(&near, "in the region, Redis of another one killed"));
    drop(home.stop());
    drop(near.stop());
    assert!(errors.is_empty(), "{errors:?}");
}
