//! How long an answer takes at a steady rate that leaves the server time to breathe.

use super::process::{Server, load};
use super::turns::{middle, rounds, seconds};
use super::{LOAD_CORE, tollgate};

const RATE: u64 = 10_000;
/// What a decision may add to the empty server's time, in milliseconds.
const MAY_ADD: f64 = 0.3;

/// Milliseconds, a list entry for each window.
struct Latencies {
    name: &'static str,
    /// Half of the answers, 99 % and 99.9 % took no longer.
    at: [Vec<f64>; 3],
    /// How late the load itself was with 99 % of its calls.
    late: Vec<f64>,
}

pub fn run() {
    let Some(program) = tollgate::program("latency") else { return };
    let (ours, _rules) = tollgate::start(&program, "grpc");
    let tonic = Server::empty(&["tonic"]);
    compare(RATE, ("tollgate", &ours), ("empty, tonic, current_thread", &tonic), MAY_ADD);
}

/// Measures a server and a reference, on the other core than the load's, at so many calls a second. `may_add` is by how many
/// milliseconds the 99 % of the first may be longer.
pub fn compare(rate: u64, ours: (&'static str, &Server), reference: (&'static str, &Server), may_add: f64) {
    println!(
        "latency of gRPC at {rate} a second, from the time a call was due, {} windows of {} s",
        rounds(),
        seconds()
    );
    let mut all = [ours, reference].map(|(name, server)| (Latencies::new(name), server));
    for window in 0..=rounds() {
        for (latencies, server) in &mut all {
            let figures = load(LOAD_CORE, &["pace", server.address("grpc"), &rate.to_string(), &seconds().to_string()]);
            // The first window does not count.
            if window > 0 {
                latencies.note(&figures);
            }
        }
    }
    all.iter().for_each(|(latencies, _)| latencies.print());
    let [ours, reference] = all.map(|(latencies, _)| middle(latencies.at[1].clone()).0);
    let word = if ours <= reference + may_add { "reached" } else { "MISSED" };
    println!("  = 99 %: {ours:.3} ms, at most {reference:.3} + {may_add} ms required: {word}");
}

impl Latencies {
    fn new(name: &'static str) -> Latencies {
        Latencies { name, at: Default::default(), late: Vec::new() }
    }

    fn note(&mut self, figures: &[f64]) {
        let [p50, p99, p999, late] = figures.try_into().expect("four numbers from the load");
        for (samples, nanoseconds) in self.at.iter_mut().zip([p50, p99, p999]) {
            samples.push(nanoseconds / 1e6);
        }
        self.late.push(late / 1e6);
    }

    fn print(&self) {
        let text = |figures: &Vec<f64>| {
            let (median, least, most) = middle(figures.clone());
            format!("{median:.3} ({least:.3} to {most:.3})")
        };
        let [half, most, nearly_all] = &self.at;
        let (half, most, nearly_all, late) = (text(half), text(most), text(nearly_all), text(&self.late));
        println!("  {:<30} ms: 50 % {half}, 99 % {most}, 99.9 % {nearly_all}; load late 99 % {late}", self.name);
    }
}
