//! What the shedders cost a request: `cargo bench --profile dist -p tollgate-shed --bench overhead`.
#![allow(missing_docs, clippy::disallowed_methods)] // A benchmark reads the clock.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tollgate_shed::{
    AdaptiveCap, Admission, CapSettings, Class, FairnessSettings, FairnessShedder, FairnessVerdict, Monotonic,
    Pressure, RequestEnd, ShedMode, TierReserves, WorkerShedder, WorkerVerdict,
};

const REQUESTS: u64 = 2_000_000;
const ROUNDS: usize = 9;

struct Shedders {
    cap: AdaptiveCap,
    worker: WorkerShedder,
    fairness: Option<FairnessShedder>,
    /// Whether callers are counted.
    is_loaded: bool,
}

/// Which shedders there are besides the worker's and the cap without reserves.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    reserves: &'static [f64],
    has_fairness: bool,
    is_loaded: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "cap, worker", reserves: &[], has_fairness: false, is_loaded: false },
    Variant { name: "with reserves", reserves: &[0.2, 0.3], has_fairness: false, is_loaded: false },
    Variant { name: "and fairness, healthy", reserves: &[0.2, 0.3], has_fairness: true, is_loaded: false },
    Variant { name: "and fairness, overloaded", reserves: &[0.2, 0.3], has_fairness: true, is_loaded: true },
];

fn main() {
    for (threads, variant) in [1, 2].into_iter().flat_map(|threads| VARIANTS.map(|variant| (threads, variant))) {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| round(threads, variant)).collect();
        let sorted = |figure: fn(&(f64, f64)) -> f64| {
            let mut figures: Vec<_> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            format!("{:.0} ns (least {:.0})", figures[ROUNDS / 2], figures[0])
        };
        let (ran, elapsed) = (sorted(|round| round.0), sorted(|round| round.1));
        let name = variant.name;
        println!(
            "{threads} threads, {name}, a request, median of {ROUNDS}: {ran} of processor time, {elapsed} elapsed"
        );
    }
    println!("Where the two differ, other work ran, and two threads may seldom have run at the same time.");
}

/// The nanoseconds of a request on each of the threads: of processor time, and elapsed.
fn round(threads: u64, variant: Variant) -> (f64, f64) {
    let reserves = TierReserves::new(variant.reserves).unwrap_or_default();
    let settings = CapSettings { min: 100, initial: 100, reserves, ..CapSettings::default() };
    let Ok(cap) = AdaptiveCap::new(settings, 1) else { return (f64::NAN, f64::NAN) };
    let fairness = variant.has_fairness.then(|| FairnessShedder::new(FairnessSettings::default()).ok()).flatten();
    let worker = WorkerShedder::new(ShedMode::Enforce);
    let shedders = Shedders { cap, worker, fairness, is_loaded: variant.is_loaded };
    let starts = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (shedders, starts) = (&shedders, &starts);
                scope.spawn(move || {
                    while !starts.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    let (ran, began) = (nanos_run(), Instant::now());
                    serve(shedders, thread);
                    let ran = nanos_run().zip(ran).map_or(f64::NAN, |(after, before)| after - before);
                    (ran / REQUESTS as f64, began.elapsed().as_nanos() as f64 / REQUESTS as f64)
                })
            })
            .collect();
        starts.store(true, Ordering::Release);
        let times: Vec<_> = running.into_iter().filter_map(|thread| thread.join().ok()).collect();
        let mean = |figure: fn(&(f64, f64)) -> f64| times.iter().map(figure).sum::<f64>() / times.len() as f64;
        (mean(|time| time.0), mean(|time| time.1))
    })
}

/// The time that this thread has run, where the system says so: other work on the machine does not count.
fn nanos_run() -> Option<f64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Requests that take 20 ms of a clock that moves by 2 µs for each: windows end as often as at half a million a second.
fn serve(shedders: &Shedders, thread: u64) {
    let mut random = thread as u32;
    for at in 0..REQUESTS {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let now = at * 2_000;
        let class = black_box(if random & 1 == 0 { Class::Get } else { Class::Post });
        if shedders.worker.admit(class, random) == WorkerVerdict::Refused {
            continue;
        }
        let tier = (random >> 8) as usize % 3;
        if !is_fair(shedders, tier, random, Monotonic::from_nanos(now)) {
            continue;
        }
        let reserve = tier.checked_sub(1);
        if let Admission::Admitted(begun) = shedders.cap.try_acquire_for(reserve, class, Monotonic::from_nanos(now)) {
            let took = 20_000_000 + u64::from(random >> 12);
            shedders.cap.release(begun, Monotonic::from_nanos(now + took), RequestEnd::Answered);
        }
    }
}

/// One of 1,000 callers.
fn is_fair(shedders: &Shedders, tier: usize, random: u32, now: Monotonic) -> bool {
    let Some(fairness) = &shedders.fairness else { return true };
    let latency = Some(if shedders.is_loaded { 4.0 } else { 1.0 });
    if !fairness.watches(now, || Pressure { refused: 0, latency }) {
        return true;
    }
    let caller = u64::from(random % 1_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fairness.admit(tier, caller, random.rotate_left(16)) != FairnessVerdict::Refused
}
