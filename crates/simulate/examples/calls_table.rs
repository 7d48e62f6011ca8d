//! Prints the tables of `src/size/calls.rs`: calls for a request, by algorithm, period and rate of a key on one server.

use tollgate_simulate::simulate;
use tollgate_simulate::size::{LeasedAlgorithm, PERIODS, RATES};

fn main() {
    for algorithm in LeasedAlgorithm::ALL {
        println!("{algorithm:?}");
        for period in PERIODS {
            let calls = RATES.map(|rate| match algorithm.scenario(period, rate) {
                Ok(scenario) => {
                    let outcome = simulate(&scenario, &mut |_| {});
                    format!("{:.4}", outcome.calls.total() as f64 / outcome.requests.max(1) as f64)
                }
                Err(error) => error.to_string(),
            });
            println!("    [{}],", calls.join(", "));
        }
    }
}
