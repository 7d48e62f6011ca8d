//! The event loop: requests that come whatever happens to those before them, a cap, and an upstream.

use tollgate_shed::{ByClass, Class};

use crate::cap::Cap;
use crate::random::Random;
use crate::upstream::{Job, MEAN, Mix, Upstream};

/// A time with the same load and the same upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) seconds: u64,
    /// Requests in relation to what the upstream can do when it is well.
    pub(crate) load: f64,
    /// The share of the servers that work.
    pub(crate) servers: f64,
    pub(crate) slowness: f64,
}

/// What a phase came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) offered: ByClass<u64>,
    pub(crate) refused: ByClass<u64>,
    /// Requests that ended in the phase.
    ended: u64,
    /// What the upstream could have done, or what was offered if that is less.
    possible: f64,
    /// Of the requests that ended, in microseconds.
    latencies: Vec<u32>,
}

/// An upstream and the classes of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) mix: Mix,
    pub(crate) servers: usize,
    pub(crate) seed: u64,
    /// The share of requests in each class.
    pub(crate) classes: ByClass<f64>,
}

/// All requests in one class, which may use the whole limit.
pub(crate) const ONE_CLASS: ByClass<f64> = ByClass::new([0.0, 0.0, 0.0, 1.0]);

impl Measured {
    /// What ended in relation to what could have ended.
    pub(crate) fn goodput(&self) -> f64 {
        self.ended as f64 / self.possible
    }

    pub(crate) fn refused_share(&self) -> f64 {
        let sum = |counts: &ByClass<u64>| counts.iter().map(|(_, count)| *count).sum::<u64>() as f64;
        sum(&self.refused) / sum(&self.offered).max(1.0)
    }

    /// The share of a class that got through.
    pub(crate) fn passed(&self, class: Class) -> f64 {
        1.0 - self.refused[class] as f64 / (self.offered[class] as f64).max(1.0)
    }

    /// In nanoseconds.
    pub(crate) fn p99(&self) -> f64 {
        let mut latencies = self.latencies.clone();
        if latencies.is_empty() {
            return f64::NAN;
        }
        let at = (latencies.len() * 99 / 100).min(latencies.len() - 1);
        f64::from(*latencies.select_nth_unstable(at).1) * 1e3
    }
}

/// Runs the phases one after the other. `watch` is called every 100 ms with the seconds and the limit.
pub(crate) fn run<C: Cap>(
    cap: &mut C,
    world: World,
    phases: &[Phase],
    watch: &mut dyn FnMut(f64, f64),
) -> Vec<Measured> {
    let mut upstream = Upstream::new(world.mix, world.servers, world.seed);
    let mut arrivals = Random::new(world.seed, 1);
    let mut classes = Random::new(world.seed, 3);
    let mut results = Vec::new();
    let (mut began, mut watched) = (0u64, 0u64);
    for phase in phases {
        let ends = began + phase.seconds * 1_000_000_000;
        upstream.servers = ((world.servers as f64 * phase.servers).round() as usize).max(1);
        upstream.slowness = phase.slowness;
        let gap = MEAN / (world.servers as f64 * phase.load);
        let capacity = phase.servers / phase.slowness;
        let possible = phase.load.min(capacity) * world.servers as f64 * (phase.seconds as f64) * 1e9 / MEAN;
        let mut measured = Measured { possible, ..Measured::default() };
        let mut arrival = began + (gap * arrivals.exponential()) as u64;
        loop {
            let end = upstream.next_end().unwrap_or(u64::MAX);
            let now = end.min(arrival);
            if now >= ends {
                break;
            }
            if now >= watched {
                watch(now as f64 / 1e9, cap.limit());
                watched = now + 100_000_000;
            }
            if end <= arrival {
                let Some((now, job)) = upstream.finish() else { break };
                cap.release(job.begun, now);
                measured.ended += 1;
                measured.latencies.push(((now - job.arrived) / 1_000) as u32);
            } else {
                let class = class(&world.classes, classes.unit());
                measured.offered[class] += 1;
                match cap.try_acquire(class, now) {
                    Some(begun) => upstream.arrive(Job { begun, arrived: now }, now),
                    None => measured.refused[class] += 1,
                }
                arrival = now + (gap * arrivals.exponential()) as u64;
            }
        }
        results.push(measured);
        began = ends;
    }
    results
}

pub(crate) fn class(shares: &ByClass<f64>, unit: f64) -> Class {
    let mut below = 0.0;
    for (class, share) in shares.iter() {
        below += share;
        if unit < below {
            return class;
        }
    }
    Class::Critical
}
