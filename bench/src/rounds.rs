//! Rounds in which contenders take turns.

use std::time::Instant;

/// What a contender did in each round, in nanoseconds an operation.
pub struct Times(Vec<f64>);

impl Times {
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    pub fn spread(&self) -> (f64, f64) {
        self.0.iter().fold((f64::MAX, 0.0), |(least, most), time| (time.min(least), time.max(most)))
    }
}

/// Runs each contender once in every round, after one round that does not count. A contender does some operations and says how
/// many.
pub fn take_turns(contenders: &mut [(&str, &mut dyn FnMut() -> usize)]) -> Vec<Times> {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(9).max(1);
    let mut times: Vec<Times> = contenders.iter().map(|_| Times(Vec::new())).collect();
    for round in 0..=rounds {
        for ((_, run), times) in contenders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let operations = run();
            if round > 0 {
                times.0.push(start.elapsed().as_nanos() as f64 / operations as f64);
            }
        }
    }
    for ((name, _), times) in contenders.iter().zip(&times) {
        let (least, most) = times.spread();
        println!("  {name:<44} {:>8.0} ns   ({least:.0} to {most:.0})", times.median());
    }
    times
}

/// A ratio and the figure that it is held to.
pub fn verdict(what: &str, ratio: f64, at_most: f64) {
    let word = if ratio <= at_most { "reached" } else { "MISSED" };
    println!("  = {what}: {ratio:.2}, at most {at_most:.2} required: {word}");
}

/// A difference and the figure that it is held to.
pub fn more(what: &str, nanoseconds: f64, at_most: f64) {
    let word = if nanoseconds <= at_most { "reached" } else { "MISSED" };
    println!("  = {what}: {nanoseconds:+.0} ns, at most {at_most:.0} ns required: {word}");
}
