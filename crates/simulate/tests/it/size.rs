//! What `size` computes, against the simulator.

use tollgate_core::{Algorithm, Span};
use tollgate_simulate::presets::minute;
use tollgate_simulate::size::{FleetTraffic, LeasedAlgorithm};
use tollgate_simulate::{PlannedLimit, Routing, Scenario, simulate};

/// Points of the table of calls, simulated again.
#[test]
fn the_table_of_calls_is_what_the_simulator_finds() {
    use LeasedAlgorithm::{Bucket, FixedWindow, SlidingWindow};
    for (algorithm, period, rate) in [
        (FixedWindow, 60, 1.0),
        (FixedWindow, 60, 30.0),
        (FixedWindow, 1, 100.0),
        (SlidingWindow, 60, 3.0),
        (SlidingWindow, 10, 30.0),
        (Bucket, 60, 10.0),
        (Bucket, 3_600, 3.0),
    ] {
        let scenario = algorithm.scenario(period, rate).unwrap();
        let outcome = simulate(&scenario, &mut |_| {});
        let simulated = outcome.calls.total() as f64 / outcome.requests as f64;
        let expected = algorithm.calls_for_a_request(Span::from_secs(period), rate);
        let ratio = simulated / expected;
        assert!((0.9..1.1).contains(&ratio), "{algorithm:?} {period} s {rate}/s: {simulated}, in the table {expected}");
    }
}

fn claims(traffic: &FleetTraffic) -> f64 {
    let line = traffic.size().into_iter().find(|line| line.id == "claims_with_leases");
    line.unwrap().value
}

/// Fleets with keys of very different rates, which meet no point of the table.
#[test]
fn claims_of_a_fleet_are_close_to_a_simulated_fleet() {
    let traffic = FleetTraffic {
        requests: 2_000.0,
        keys: 2_000,
        exponent: 1.0,
        servers: 20,
        servers_of_a_key: 20,
        algorithm: LeasedAlgorithm::FixedWindow,
        ..FleetTraffic::default()
    };
    for traffic in [
        traffic.clone(),
        FleetTraffic { servers_of_a_key: 2, ..traffic.clone() },
        FleetTraffic { algorithm: LeasedAlgorithm::Bucket, exponent: 1.3, ..traffic.clone() },
        FleetTraffic { limits: 2, ..traffic },
    ] {
        let algorithm = match traffic.algorithm {
            LeasedAlgorithm::Bucket => Algorithm::Bucket { burst: 60_000, paced: false },
            _ => Algorithm::FixedWindow,
        };
        let limit = minute(60_000, algorithm).unwrap();
        let mut scenario = Scenario::new("fleet", limit.clone());
        for _ in 1..traffic.limits {
            // Not the same limit twice, of which both would always be out of units together.
            let limit = minute(90_000, algorithm).unwrap();
            scenario.limits.push(PlannedLimit::new(limit));
        }
        (scenario.servers, scenario.traffic.rate) = (traffic.servers, traffic.requests);
        (scenario.traffic.keys, scenario.traffic.exponent) = (traffic.keys, traffic.exponent);
        if traffic.servers_of_a_key < traffic.servers {
            scenario.traffic.routing = Routing::Sticky(traffic.servers_of_a_key);
        }
        (scenario.warm_up, scenario.duration) = (Span::from_secs(60), Span::from_secs(120));
        let outcome = simulate(&scenario, &mut |_| {});
        let simulated = outcome.calls.total() as f64 / outcome.seconds();
        let computed = claims(&traffic);
        assert!((0.8..1.25).contains(&(computed / simulated)), "{traffic:?}: {computed}, simulated {simulated}");
    }
}
