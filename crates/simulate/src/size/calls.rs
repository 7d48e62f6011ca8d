//! How many calls to the store a request of a leased key costs, by the rate of its key on one server. Simulated.

use tollgate_core::{Algorithm, Limit, LimitError, Period, Span};

use crate::scenario::Scenario;

/// How a leased limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasedAlgorithm {
    /// A fixed window.
    FixedWindow,
    /// A sliding window.
    SlidingWindow,
    /// A token bucket or GCRA.
    Bucket,
}

/// The periods of the table, in seconds.
pub const PERIODS: [u64; 4] = [1, 10, 60, 3_600];
/// The rates of the table: requests a second of one key on one server.
pub const RATES: [f64; 10] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0];
/// The servers of the fleets behind the table …
const SERVERS: u32 = 4;
/// … and how much of their limits they use.
const LOAD: f64 = 0.5;
/// The smallest limit of these fleets: smaller ones are not leased.
const MIN_AMOUNT: u64 = 1_000;

/// Calls for a request, a row for each of [`PERIODS`] and a column for each of [`RATES`]. `cargo run --release -p
/// tollgate-simulate --example calls_table` prints the tables.
const FIXED_WINDOW: [[f64; RATES.len()]; PERIODS.len()] = [
    [0.9988, 0.9544, 0.8785, 0.7209, 0.5735, 0.3019, 0.1388, 0.0501, 0.0192, 0.0092],
    [0.9963, 0.7265, 0.5826, 0.4926, 0.2682, 0.1103, 0.0434, 0.0127, 0.0048, 0.0016],
    [0.9875, 0.5520, 0.3513, 0.1654, 0.0680, 0.0216, 0.0079, 0.0023, 0.0008, 0.0003],
    [0.9900, 0.5175, 0.3311, 0.1560, 0.0617, 0.0189, 0.0065, 0.0020, 0.0006, 0.0002],
];
const SLIDING_WINDOW: [[f64; RATES.len()]; PERIODS.len()] = [
    [0.9988, 0.9544, 0.8785, 0.7209, 0.5735, 0.3019, 0.1388, 0.0540, 0.0295, 0.0121],
    [0.9963, 0.7265, 0.5826, 0.4926, 0.2682, 0.1103, 0.0544, 0.0161, 0.0057, 0.0019],
    [0.9875, 0.5520, 0.3513, 0.1654, 0.0885, 0.0277, 0.0098, 0.0030, 0.0009, 0.0003],
    [0.9900, 0.6700, 0.4075, 0.1640, 0.0617, 0.0189, 0.0065, 0.0020, 0.0006, 0.0002],
];
const BUCKET: [[f64; RATES.len()]; PERIODS.len()] = [
    [1.0000, 1.0000, 0.9991, 0.9833, 0.9498, 0.8446, 0.6436, 0.7963, 0.3092, 0.0975],
    [1.0000, 0.9837, 0.9446, 0.8312, 0.6133, 0.3429, 0.1492, 0.0546, 0.0186, 0.0056],
    [0.9992, 0.8959, 0.7261, 0.4507, 0.2258, 0.0774, 0.0276, 0.0085, 0.0028, 0.0008],
    [0.9950, 0.7194, 0.4185, 0.1702, 0.0631, 0.0196, 0.0067, 0.0020, 0.0007, 0.0002],
];

impl LeasedAlgorithm {
    /// All of them.
    pub const ALL: [LeasedAlgorithm; 3] =
        [LeasedAlgorithm::FixedWindow, LeasedAlgorithm::SlidingWindow, LeasedAlgorithm::Bucket];

    /// Calls for a request of a key with `rate` requests a second on one server, between the points of the table on a line
    /// in logarithms. Below a period of a second, nothing is gained.
    pub fn calls_for_a_request(self, period: Span, rate: f64) -> f64 {
        let seconds = period.as_micros() as f64 / 1e6;
        if seconds < PERIODS[0] as f64 {
            return 1.0;
        }
        let table = match self {
            LeasedAlgorithm::FixedWindow => &FIXED_WINDOW,
            LeasedAlgorithm::SlidingWindow => &SLIDING_WINDOW,
            LeasedAlgorithm::Bucket => &BUCKET,
        };
        let rows = table.map(|row| interpolate(&RATES, &row, rate));
        interpolate(&PERIODS.map(|period| period as f64), &rows, seconds).min(1.0)
    }

    /// The fleet behind a point of the table.
    ///
    /// # Errors
    /// If the limit can't be counted.
    pub fn scenario(self, period: u64, rate: f64) -> Result<Scenario, LimitError> {
        let all = rate * f64::from(SERVERS);
        let amount = ((all * period as f64 / LOAD) as u64).max(MIN_AMOUNT);
        let algorithm = match self {
            LeasedAlgorithm::FixedWindow => Algorithm::FixedWindow,
            LeasedAlgorithm::SlidingWindow => Algorithm::SlidingWindow { sub_windows: 1 },
            LeasedAlgorithm::Bucket => Algorithm::Bucket { burst: amount, paced: false },
        };
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(period))?, algorithm)?;
        let mut scenario = Scenario::new("calls for a request", limit);
        scenario.servers = SERVERS;
        scenario.traffic.rate = all;
        // Whole periods, with enough requests.
        let measured = (20_000.0 / all).clamp(60.0, 20_000.0) as u64;
        scenario.warm_up = Span::from_secs(60);
        scenario.duration = Span::from_secs(60 + measured.div_ceil(60) * 60);
        Ok(scenario)
    }
}

/// The value at `x`, between the points next to it on a line in logarithms; beyond the ends, that of the end.
fn interpolate<const N: usize>(places: &[f64; N], values: &[f64; N], x: f64) -> f64 {
    let after = places.partition_point(|place| *place < x);
    let (Some(last), Some(next)) = (after.checked_sub(1), places.get(after)) else {
        return values[after.min(N - 1)];
    };
    let share = (x / places[last]).ln() / (next / places[last]).ln();
    (values[last].ln() * (1.0 - share) + values[after].ln() * share).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_between_points_are_on_a_line_in_logarithms() {
        let (places, values) = ([1.0, 10.0, 100.0], [1.0, 0.1, 0.001]);
        for (x, expected) in [(0.1, 1.0), (1.0, 1.0), (10f64.sqrt(), 0.1f64.sqrt()), (10.0, 0.1), (1_000.0, 0.001)] {
            let value = interpolate(&places, &values, x);
            assert!((value / expected - 1.0).abs() < 1e-9, "{x}: {value}");
        }
    }

    #[test]
    fn busier_keys_cost_fewer_calls_for_a_request() {
        for algorithm in LeasedAlgorithm::ALL {
            for period in PERIODS.map(Span::from_secs) {
                let calls = RATES.map(|rate| algorithm.calls_for_a_request(period, rate));
                assert!(calls.is_sorted_by(|one, next| *next <= one * 1.25), "{algorithm:?} {period:?}: {calls:?}");
                assert!(calls[0] <= 1.0 && calls[9] < 0.1 * calls[0], "{algorithm:?} {period:?}: {calls:?}");
            }
            assert_eq!(algorithm.calls_for_a_request(Span::from_micros(1_000), 1_000.0), 1.0);
        }
    }
}
