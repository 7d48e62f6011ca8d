//! An upstream with less capacity than load, behind the gateway's adaptive cap and behind Envoy's adaptive concurrency filter: both at
//! the same time, with the same requests at the same moments.

use std::net::TcpListener;

use super::envoy::{self, Filter};
use super::{Proxy, ours};
use crate::load::proxied::{MEAN_SERVICE, SLOTS};
use crate::server::process::load_proxy;
use crate::server::tollgate;
use crate::server::turns::{at_least, at_most, middle, rounds};

/// Long enough for two of Envoy's measurements of the latency, which it makes every 60 s.
const HEALTHY_SECONDS: f64 = 130.0;
const HEALTHY: f64 = 0.6;
/// The first seconds do not count: both begin with no idea of the upstream.
const WARM_UP_SECONDS: f64 = 5.0;
const OVERLOAD: f64 = 2.0;
const OVERLOAD_SECONDS: f64 = 15.0;
const CLASSES: f64 = 3.0;
const CLASSES_SECONDS: f64 = 30.0;
const CLASS_NAMES: [&str; 4] = ["test", "get", "post", "critical"];

/// What came of the requests through one proxy.
struct Outcome {
    goodput: f64,
    /// Of half and of 99 % of what passed, in milliseconds.
    p50: f64,
    p99: f64,
    /// By class: sent, passed, refused.
    classes: [[f64; 3]; 4],
}

impl Outcome {
    fn read(line: &[f64]) -> Outcome {
        let [goodput, p50, p99, classes @ ..] = line else { panic!("figures from the load, not {line:?}") };
        let (classes, _) = classes.as_chunks::<3>();
        let classes = classes.try_into().unwrap_or_else(|_| panic!("four classes from the load, not {line:?}"));
        Outcome { goodput: *goodput, p50: p50 / 1e6, p99: p99 / 1e6, classes }
    }

    fn sum(&self, at: usize) -> f64 {
        self.classes.iter().map(|class| class[at]).sum()
    }

    fn refused(&self) -> f64 {
        self.sum(2)
    }
}

pub fn run() {
    let Some(program) = tollgate::program("adaptive") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = listener.local_addr().expect("an address").to_string();
    println!("adaptive cap, an upstream with {SLOTS} slots of {} ms on average and a queue", MEAN_SERVICE / 1_000_000);
    let ours = ours::start(&program, &upstream, ours::NO_RATES, ours::ADAPTIVE);
    let envoy = envoy::start(&upstream, &Filter::AdaptiveConcurrency);
    let proxies: Vec<(&str, &Proxy)> =
        [Some(("tollgate", &ours)), envoy.as_ref().map(|envoy| ("envoy", envoy))].into_iter().flatten().collect();
    let mut seed = 0;
    let mut phase = |load: f64, kinds: &str, seconds: f64| {
        seed += 1;
        let addresses: Vec<&str> = proxies.iter().map(|(_, proxy)| &*proxy.address).collect();
        let (load, seed, seconds) = (load.to_string(), seed.to_string(), seconds.to_string());
        let lines = load_proxy(&listener, &["open-loop", &load, kinds, &seed, &seconds, &addresses.join(",")]);
        lines.iter().map(|line| Outcome::read(line)).collect::<Vec<_>>()
    };
    phase(HEALTHY, "get", WARM_UP_SECONDS);
    let healthy = phase(HEALTHY, "get", seconds_of(HEALTHY_SECONDS));
    for ((name, _), outcome) in proxies.iter().zip(&healthy) {
        println!(
            "  {:<47} {} of {} refused, ms: 50 % {:.1}, 99 % {:.1}",
            format!("{name}, {HEALTHY} of the capacity"),
            outcome.refused(),
            outcome.sum(0),
            outcome.p50,
            outcome.p99
        );
    }
    let overloads: Vec<Vec<Outcome>> =
        (0..rounds()).map(|_| phase(OVERLOAD, "get", seconds_of(OVERLOAD_SECONDS))).collect();
    let of =
        |proxy: usize, figure: fn(&Outcome) -> f64| middle(overloads.iter().map(|both| figure(&both[proxy])).collect());
    for (number, (name, _)) in proxies.iter().enumerate() {
        let ((goodput, least, most), (p50, ..)) = (of(number, |one| one.goodput), of(number, |one| one.p50));
        let (p99, lowest, highest) = of(number, |one| one.p99);
        println!(
            "  {:<47} goodput {goodput:.3} ({least:.3} to {most:.3}), ms: 50 % {p50:.1}, 99 % {p99:.1} ({lowest:.1} to {highest:.1})",
            format!("{name}, {OVERLOAD} times the capacity")
        );
    }
    let classes = phase(CLASSES, "all", seconds_of(CLASSES_SECONDS));
    let passed = |class: usize| 100.0 * classes[0].classes[class][1] / classes[0].classes[class][0].max(1.0);
    let shares: Vec<String> =
        CLASS_NAMES.iter().enumerate().map(|(class, name)| format!("{name} {:.1} %", passed(class))).collect();
    println!(
        "  {:<47} goodput {:.3}, passed: {}",
        format!("tollgate, {CLASSES} times the capacity, by class"),
        classes[0].goodput,
        shares.join(", ")
    );
    at_most("requests refused at 0.6 of the capacity", middle(vec![healthy[0].refused()]), 0.0);
    if proxies.len() > 1 {
        at_least("the same of envoy, to show that it can happen", middle(vec![healthy[1].refused()]), 1.0);
        let ratio = |figure: fn(&Outcome) -> f64| {
            middle(overloads.iter().map(|both| figure(&both[0]) / figure(&both[1])).collect())
        };
        at_least("goodput at 2 times the capacity, tollgate to envoy", ratio(|one| one.goodput), 1.0);
        at_most("99 % of the latency, tollgate to envoy", ratio(|one| one.p99), 1.0);
    }
    at_least("% of critical requests that pass at 3 times the capacity", middle(vec![passed(3)]), 99.0);
}

/// A shorter time for a try of the benchmark itself.
fn seconds_of(seconds: f64) -> f64 {
    std::env::var("PHASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(seconds)
}
