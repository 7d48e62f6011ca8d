//! The accuracy of the sliding window compared with the exact log under skewed load: a limit of 100 a minute, 100,000
//! keys drawn by Zipf's law with exponent 1, and a million requests in ten minutes of virtual time.

use std::collections::VecDeque;

use tollgate_core::algorithm::TickCharge;
use tollgate_core::{Algorithm, ClaimId, CounterState, Limit, Period, Span};

const KEYS: usize = 100_000;
const REQUESTS: u64 = 1_000_000;
const MINUTES: u64 = 10;
const AMOUNT: u64 = 100;
const MINUTE: u64 = 60_000_000;
/// The start of a minute.
const START: u64 = 1_767_225_600_000_000;

/// The requests that one algorithm admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    admitted: u64,
    /// The maximum admitted for one key in any 60 seconds, whatever their start.
    most: u64,
}

/// The SplitMix64 generator: small and deterministic on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Requests in order of time: the moment and the key.
fn traffic(start: u64) -> Vec<(u64, usize)> {
    // The key of rank r has the weight 1/r, in fixed point.
    let mut total = 0u64;
    let weights: Vec<u64> = (1..=KEYS as u64)
        .map(|rank| {
            total += (1 << 40) / rank;
            total
        })
        .collect();
    let mut random = Random(20_260_101);
    let mut moments: Vec<u64> = (0..REQUESTS).map(|_| start + random.next() % (MINUTES * MINUTE)).collect();
    moments.sort_unstable();
    let key = |random: &mut Random| {
        let drawn = random.next() % total;
        weights.partition_point(|weight| *weight <= drawn)
    };
    moments.into_iter().map(|moment| (moment, key(&mut random))).collect()
}

fn run(algorithm: Algorithm, traffic: &[(u64, usize)]) -> Outcome {
    let limit = Limit::new(AMOUNT, Period::fixed(Span::from_micros(MINUTE)).unwrap(), algorithm).unwrap();
    let mut states = vec![CounterState::default(); KEYS];
    let mut recent: Vec<VecDeque<u64>> = vec![VecDeque::new(); KEYS];
    let mut outcome = Outcome { admitted: 0, most: 0 };
    for (moment, key) in traffic {
        let state = &mut states[*key];
        let now = state.advance(&limit, *moment).now;
        let charge = TickCharge { limit: &limit, now, by: ClaimId(0), units: 1 };
        if !state.admits(&charge) {
            continue;
        }
        state.spend(&charge);
        outcome.admitted += 1;
        let recent = &mut recent[*key];
        recent.push_back(*moment);
        while recent.front().is_some_and(|first| first + MINUTE <= *moment) {
            recent.pop_front();
        }
        outcome.most = outcome.most.max(recent.len() as u64);
    }
    outcome
}

fn compare(start: u64) -> [Outcome; 3] {
    let traffic = traffic(start);
    let log = run(Algorithm::SlidingLog, &traffic);
    let plain = run(Algorithm::SlidingWindow { sub_windows: 1 }, &traffic);
    let parts = run(Algorithm::SlidingWindow { sub_windows: 10 }, &traffic);
    println!("from second {} of a minute:", start % MINUTE / 1_000_000);
    for (name, outcome) in [("exact log", log), ("sliding window", plain), ("10 sub-windows", parts)] {
        let hundredths = outcome.off(log) * 10_000 / log.admitted;
        println!(
            "{name:>16}: admitted {} of {REQUESTS}, {}.{:02} % from the log; at most {} in any minute ({AMOUNT} allowed)",
            outcome.admitted,
            hundredths / 100,
            hundredths % 100,
            outcome.most
        );
    }
    assert_eq!(log.most, AMOUNT, "the log is exact");
    assert!(log.admitted < REQUESTS * 9 / 10, "the load does not meet the limit");
    [log, plain, parts]
}

impl Outcome {
    fn off(self, log: Outcome) -> u64 {
        self.admitted.abs_diff(log.admitted)
    }
}

#[test]
fn the_sliding_window_is_close_to_the_log() {
    let [log, plain, parts] = compare(START);
    assert!(plain.off(log) * 100 <= log.admitted, "more than 1 % from the log");
    assert!(plain.most * 2 <= AMOUNT * 3, "more than 1.5 times the limit in a minute");
    assert!(parts.off(log) < plain.off(log), "sub-windows admit no closer to the log");
    assert!(parts.most < plain.most, "sub-windows let no fewer through in a minute");
}

/// A burst late in a window is weighted as if it were spread evenly over the window. This is the maximum error of the
/// sliding window, with or without parts: twice the limit.
#[test]
fn a_sudden_start_late_in_a_window_is_the_worst_case() {
    for second in [17, 30, 59] {
        let [log, plain, parts] = compare(START + second * 1_000_000);
        for outcome in [plain, parts] {
            assert!(outcome.off(log) * 100 <= log.admitted, "more than 1 % from the log");
            assert!(outcome.most <= 2 * AMOUNT, "more than twice the limit in a minute");
        }
    }
}
