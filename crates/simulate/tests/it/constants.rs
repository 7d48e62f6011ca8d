//! Each constant of leases earns its place: without it, a figure gets worse.

use tollgate_core::{Algorithm, Limit, Period, Span};
use tollgate_simulate::{Bursts, Fault, Lost, Outcome, PlannedFault, Routing, Scenario, simulate};
use tollgate_store::leased::LeasePolicy;

const FIXED: Algorithm = Algorithm::FixedWindow;
const SLIDING: Algorithm = Algorithm::SlidingWindow { sub_windows: 1 };

/// A constant, and what is worse without it.
struct Row {
    constant: &'static str,
    /// Takes its effect away.
    without: fn(&mut LeasePolicy),
    world: Scenario,
    figure: Figure,
    /// The figure is at most this …
    most: f64,
    /// … and without the constant at least this.
    least: f64,
}

/// A figure of a run. Less is better.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// Calls for a hundred requests.
    Calls,
    /// The percentage of an exact fleet's requests that are not admitted.
    Missing,
    /// The same in the worst window.
    MissingInAWindow,
    /// Requests of a hundred that wait for the store.
    Waits,
    /// How far the servers are from being treated alike, by Jain's index, in percent.
    Unfairness,
    /// Units that are admitted and not counted by the store.
    Uncovered,
    /// Units that were lost with calls without an answer.
    Unanswered,
    /// Keys with a pool at the end.
    Pools,
}

impl Figure {
    fn of(self, outcome: &Outcome) -> f64 {
        let requests = outcome.requests as f64 / 100.0;
        match self {
            Figure::Calls => outcome.calls.total() as f64 / requests,
            Figure::Missing => 100.0 * (1.0 - outcome.against_exact()),
            Figure::MissingInAWindow => 100.0 * (1.0 - outcome.least_window().unwrap()),
            Figure::Waits => outcome.waits.len() as f64 / requests,
            Figure::Unfairness => 100.0 * (1.0 - outcome.fairness()),
            Figure::Uncovered => outcome.uncovered as f64,
            Figure::Unanswered => outcome.units.unanswered as f64,
            Figure::Pools => outcome.pools as f64,
        }
    }
}

/// A fleet that shares one limit, with requests for this share of it.
fn fleet(algorithm: Algorithm, servers: u32, amount: u64, period: u64, load: f64) -> Scenario {
    let limit = Limit::new(amount, Period::fixed(Span::from_secs(period)).unwrap(), algorithm).unwrap();
    let mut scenario = Scenario::new("constants", limit);
    scenario.servers = servers;
    scenario.duration = Span::from_secs((3 * period).max(20));
    scenario.traffic.rate = load * amount as f64 / period as f64;
    scenario
}

fn bucket(amount: u64) -> Algorithm {
    Algorithm::Bucket { burst: amount, paced: false }
}

fn millis(millis: u64) -> Span {
    Span::from_micros(1_000 * millis)
}

/// The traffic moves from one server to another at this interval.
fn moving(mut scenario: Scenario, every: u64) -> Scenario {
    (scenario.traffic.routing, scenario.traffic.moves) = (Routing::Sticky(1), Some(millis(every)));
    scenario
}

fn bursts(mut scenario: Scenario, on: u64, off: u64) -> Scenario {
    scenario.traffic.bursts = Some(Bursts { on: millis(on), off: millis(off) });
    scenario
}

fn with(mut scenario: Scenario, change: impl FnOnce(&mut Scenario)) -> Scenario {
    change(&mut scenario);
    scenario
}

/// Keys with a server each, whose clocks are off by up to so many millionths, and which take units for whole windows.
fn drifting(drift: u32) -> Scenario {
    with(fleet(FIXED, 8, 40_000, 5, 0.0), |scenario| {
        (scenario.traffic.keys, scenario.traffic.rate, scenario.traffic.routing) = (8, 4_000.0, Routing::Sticky(1));
        scenario.network.round_trip = (Span::ZERO, Span::ZERO);
        (scenario.clock_drift, scenario.compares_counters) = (drift, true);
        (scenario.lease_policy.period_share, scenario.lease_policy.part_share) = (1.0, 1.0);
    })
}

/// The store is in another region.
fn far(scenario: Scenario) -> Scenario {
    with(scenario, |scenario| {
        (scenario.network.round_trip, scenario.network.deadline) = ((millis(40), millis(80)), millis(200));
    })
}

/// Requests of many keys, alike.
fn keys(scenario: Scenario, keys: u64, rate: f64) -> Scenario {
    with(scenario, |scenario| (scenario.traffic.keys, scenario.traffic.rate) = (keys, rate))
}

fn seconds(scenario: Scenario, seconds: u64) -> Scenario {
    with(scenario, |scenario| scenario.duration = Span::from_secs(seconds))
}

fn fault(scenario: Scenario, at: u64, fault: Fault) -> Scenario {
    with(scenario, |scenario| scenario.faults = vec![PlannedFault { at: Span::from_secs(at), fault }])
}

/// A row: the constant and the value that takes its effect away, the world, the figure, the most it is, and the least it is
/// without the constant.
macro_rules! row {
    ($constant:ident = $without:expr, $world:expr, $figure:ident, $most:expr, $least:expr) => {
        Row {
            constant: stringify!($constant),
            without: |policy| policy.$constant = $without,
            world: $world,
            figure: Figure::$figure,
            most: $most,
            least: $least,
        }
    };
}

fn rows() -> Vec<Row> {
    let parts = Algorithm::SlidingWindow { sub_windows: 10 };
    let crash = Fault::Crash { servers: 5, restart_after: Some(millis(10)) };
    let partition = Fault::Partition { servers: 8, lasts: Span::from_secs(2), lost: Lost::Answers };
    let edge = || fleet(SLIDING, 20, 2_000, 20, 1.02);
    let overload = || fleet(SLIDING, 8, 2_000, 20, 3.0);
    let rare = || keys(fleet(FIXED, 4, 3_000, 60, 0.5), 2_000, 200.0);
    vec![
        row!(period_share = 1.0, fault(fleet(FIXED, 10, 6_000, 12, 1.02), 17, crash), MissingInAWindow, 3.0, 4.5),
        row!(period_share = 1.0, edge(), Missing, 0.6, 1.2),
        row!(part_share = 1.0, fleet(parts, 8, 3_000, 10, 1.02), Missing, 0.8, 1.2),
        row!(min_time = 0.0, fleet(FIXED, 4, 1_000, 1, 0.5), Calls, 6.0, 9.0),
        row!(quota_share = 1.0, fleet(FIXED, 4, 1_000, 10, 20.0), Unfairness, 1.0, 6.0),
        row!(scarce = 0.0, edge(), Missing, 0.6, 0.9),
        row!(min_scarce_time = 1.0, edge(), Missing, 0.6, 1.3),
        row!(refused_gain = 0.0, overload(), Calls, 6.0, 18.0),
        row!(refused_weight = 1.0, fleet(SLIDING, 20, 2_000, 20, 3.0), Calls, 13.0, 16.0),
        row!(deviations = 0.0, seconds(fleet(FIXED, 20, 1_000, 10, 1.0), 200), Missing, 0.1, 0.3),
        row!(bucket_share = 0.0, fleet(bucket(6_000), 4, 6_000, 60, 0.5), Calls, 9.0, 99.0),
        row!(pace_share = 0.0, overload(), Calls, 6.0, 40.0),
        row!(fixed_pause = 0.0, fleet(FIXED, 8, 2_000, 20, 3.0), Calls, 2.0, 40.0),
        row!(max_fixed_pause = 1.0, fleet(FIXED, 8, 3_000, 30, 3.0), Calls, 1.2, 1.8),
        row!(ahead = 0.0, fleet(FIXED, 2, 60_000, 60, 0.5), Waits, 0.06, 0.1),
        row!(ahead_calls = 0.0, far(fleet(FIXED, 6, 10_000, 60, 0.9)), Waits, 1.0, 2.0),
        row!(min_ahead = 0.0, fleet(FIXED, 8, 3_000, 60, 0.1), Calls, 28.0, 30.0),
        row!(idle_gaps = 0.0, keys(fleet(FIXED, 2, 3_000, 60, 0.5), 50, 50.0), Calls, 35.0, 90.0),
        row!(idle_gaps = 1e9, moving(fleet(FIXED, 8, 3_000, 20, 1.0), 4_000), Missing, 1.0, 6.0),
        row!(min_idle = 0.0, bursts(fleet(SLIDING, 1, 10_000, 60, 0.5), 200, 700), Calls, 4.0, 15.0),
        row!(
            max_idle = 1e9,
            seconds(bursts(keys(fleet(FIXED, 1, 3_000, 60, 0.5), 200, 24.0), 60_000, 200_000), 130),
            Pools,
            5.0,
            30.0
        ),
        row!(min_requests = 0, seconds(fleet(FIXED, 200, 10_000, 60, 2.0), 60), MissingInAWindow, 0.2, 0.4),
        row!(
            unanswered_pause = 0.0,
            fault(fleet(FIXED, 8, 3_000, 30, 0.9), 5, partition),
            Unanswered,
            1_600.0,
            2_000.0
        ),
        row!(door_threshold = 1, rare(), Pools, 200.0, 220.0),
        row!(door_interval = 1.0, keys(fleet(FIXED, 4, 3_000, 60, 0.5), 200, 200.0), Calls, 55.0, 75.0),
        row!(door_interval = 1_000.0, rare(), Pools, 200.0, 3_000.0),
        row!(drift = 0.0, drifting(1_000), Uncovered, 0.0, 1.0),
        row!(margin = 0.0, with(drifting(190), |s| s.lease_policy.drift = 0.0), Uncovered, 0.0, 1.0),
    ]
}

/// A constant without a row does not compile here.
#[test]
fn all_constants_have_a_row() {
    macro_rules! names {
        ($($name:ident),*) => {{
            let LeasePolicy { max_time: _, $($name: _),* } = LeasePolicy::default();
            [$(stringify!($name)),*]
        }};
    }
    let names = names!(
        period_share,
        part_share,
        min_time,
        quota_share,
        scarce,
        min_scarce_time,
        refused_gain,
        refused_weight,
        deviations,
        bucket_share,
        pace_share,
        fixed_pause,
        max_fixed_pause,
        ahead,
        ahead_calls,
        min_ahead,
        idle_gaps,
        min_idle,
        max_idle,
        min_requests,
        unanswered_pause,
        door_threshold,
        door_interval,
        drift,
        margin
    );
    let rows = rows();
    for name in names {
        assert!(rows.iter().any(|row| row.constant == name), "there is no row for {name}");
    }
}

#[test]
fn each_constant_earns_its_place() {
    let mut wrong = Vec::new();
    for Row { constant, without, mut world, figure, most, least } in rows() {
        let with = figure.of(&simulate(&world, &mut |_| {}));
        without(&mut world.lease_policy);
        let without = figure.of(&simulate(&world, &mut |_| {}));
        let found = format!("{constant}: {figure:?} {with:.3}, without it {without:.3}");
        println!("{found}");
        if !(with <= most && without >= least) {
            wrong.push(format!("{found}; expected at most {most}, at least {least}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
