//! Limits, modes and numbers as people read them, in the words of the rule files.

use tollgate::{Algorithm, Limit, Mode, Span};
pub(crate) use tollgate_observe::words::period;
use tollgate_observe::words::span;

/// `1 rule`, `2 rules`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// `100/minute, token bucket with a burst of 200`.
pub(crate) fn limit(limit: &Limit) -> String {
    let amount = limit.amount();
    let rate = || format!("{amount}/{}", period(limit.period()));
    match limit.algorithm() {
        Algorithm::Bucket { burst, paced } => {
            let name = if paced { "leaky bucket" } else { "token bucket" };
            format!("{}, {name} with a burst of {burst}", rate())
        }
        Algorithm::FixedWindow => format!("{}, fixed window", rate()),
        Algorithm::SlidingWindow { sub_windows: 1 } => format!("{}, sliding window", rate()),
        Algorithm::SlidingWindow { sub_windows } => format!("{}, sliding window in {sub_windows} parts", rate()),
        Algorithm::SlidingLog => format!("{}, sliding log", rate()),
        Algorithm::Concurrency => format!("{amount} concurrent, held for {} at most", length(limit.period().span())),
    }
}

/// The name of the algorithm in rule files. GCRA is the token bucket's other name.
pub(crate) fn algorithm(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Bucket { paced: false, .. } => "token_bucket",
        Algorithm::Bucket { paced: true, .. } => "leaky_bucket",
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingWindow { .. } => "sliding_window",
        Algorithm::SlidingLog => "sliding_log",
        Algorithm::Concurrency => "concurrency",
    }
}

pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::AnyOf => "any_of",
        Mode::Shadow => "shadow",
        Mode::Soft => "soft",
    }
}

/// A length of time as a number and a unit.
fn length(of: Span) -> String {
    let text = span(of);
    if text.starts_with(|first: char| first.is_ascii_digit()) { text } else { format!("1 {text}") }
}
