//! One key at rates for which others switch from one scheme to the next, up to 200,000 requests a second: here it is leased at
//! all of them, and what the store sees hardly depends on the rate.

use tollgate_core::{Algorithm, Span};
use tollgate_simulate::presets::minute;
use tollgate_simulate::{Scenario, simulate};

/// The fleet is this many times smaller than the one of the rows, so that a server sees as much.
const SCALE: f64 = 20.0;
const SERVERS: f64 = 1_000.0;

/// Requests a second of the key on 1,000 servers, as a share of the limit; the most calls a second with a fixed window and
/// with a bucket; the least share of what an exact fleet admits.
const ROWS: [(f64, f64, f64, f64, f64); 6] = [
    (1e2, 0.5, 100.0, 100.0, 0.99),
    (1e3, 0.5, 200.0, 600.0, 0.99),
    (1e4, 0.5, 250.0, 950.0, 0.99),
    (5e4, 0.5, 250.0, 950.0, 0.99),
    (2e5, 0.5, 250.0, 950.0, 0.99),
    // In this time the bucket runs empty, which servers notice one after the other.
    (2e5, 4.0, 400.0, 1_100.0, 0.97),
];

#[test]
fn the_store_sees_few_calls_of_a_key_at_any_rate() {
    for (rate, load, most_of_window, most_of_bucket, least) in ROWS {
        let amount = (rate * 60.0 / SCALE / load) as u64;
        let bucket = Algorithm::Bucket { burst: amount, paced: false };
        for (algorithm, most) in [(Algorithm::FixedWindow, most_of_window), (bucket, most_of_bucket)] {
            let mut scenario = Scenario::new("thresholds", minute(amount, algorithm).unwrap());
            scenario.servers = (SERVERS / SCALE) as u32;
            scenario.traffic.rate = rate / SCALE;
            (scenario.warm_up, scenario.duration) = (Span::from_secs(10), Span::from_secs(30));
            let outcome = simulate(&scenario, &mut |_| {});
            let calls = outcome.calls.total() as f64 / outcome.seconds() * SCALE;
            let row = format!("{} {rate}/s at {load}", algorithm.name());
            assert!(calls <= most, "{row}: {calls} calls a second, at most {most} expected");
            assert_eq!((outcome.violated, outcome.excess), (0, 0), "{row}");
            assert!(outcome.against_exact() >= least, "{row}: {}", outcome.against_exact());
        }
    }
}
