//! A simulated upstream: servers that work on one request each, and a queue in front of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tollgate_shed::Begun;

use crate::random::Random;

/// The mean time that a server works on a request, in nanoseconds.
pub(crate) const MEAN: f64 = 20e6;

/// How long servers work on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    Exponential,
    Constant,
    /// A deviation of 0.6 of the logarithm: the 99th percentile is 3.4 times the mean.
    Lognormal,
    /// 90 % take 10 ms and 10 % 110 ms, each within 10 %.
    Bimodal,
}

impl Mix {
    pub(crate) const ALL: [Mix; 4] = [Mix::Exponential, Mix::Constant, Mix::Lognormal, Mix::Bimodal];

    /// The time of one request, in nanoseconds.
    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Mix::Exponential => MEAN * random.exponential(),
            Mix::Constant => MEAN,
            Mix::Lognormal => MEAN * (0.6 * random.normal() - 0.18).exp(),
            Mix::Bimodal => {
                let mode = if random.unit() < 0.9 { 0.5 } else { 5.5 };
                MEAN * mode * (0.9 + 0.2 * random.unit())
            }
        }
    }

    /// The 99th percentile without a queue, in nanoseconds.
    pub(crate) fn idle_p99(self) -> f64 {
        let mut random = Random::new(1, 99);
        let mut times: Vec<_> = (0..200_000).map(|_| self.draw(&mut random)).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() * 99 / 100]
    }
}

/// A request at the upstream.
pub(crate) struct Job<B> {
    pub(crate) begun: B,
    pub(crate) arrived: u64,
}

pub(crate) struct Upstream<B = Begun> {
    mix: Mix,
    pub(crate) servers: usize,
    /// How much longer requests take than usual.
    pub(crate) slowness: f64,
    /// The ends of the requests that are worked on, with their places in `jobs`.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    jobs: Vec<Option<Job<B>>>,
    free: Vec<usize>,
    queue: VecDeque<Job<B>>,
    random: Random,
}

impl<B> Upstream<B> {
    pub(crate) fn new(mix: Mix, servers: usize, seed: u64) -> Upstream<B> {
        Upstream {
            mix,
            servers,
            slowness: 1.0,
            ends: BinaryHeap::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            random: Random::new(seed, 2),
        }
    }

    pub(crate) fn next_end(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn arrive(&mut self, job: Job<B>, now: u64) {
        self.queue.push_back(job);
        self.start(now);
    }

    /// The request that ends first.
    pub(crate) fn finish(&mut self) -> Option<(u64, Job<B>)> {
        let Reverse((at, place)) = self.ends.pop()?;
        self.free.push(place);
        let job = self.jobs[place].take()?;
        self.start(at);
        Some((at, job))
    }

    fn start(&mut self, now: u64) {
        while self.ends.len() < self.servers {
            let Some(job) = self.queue.pop_front() else { return };
            let time = self.mix.draw(&mut self.random) * self.slowness;
            let place = self.free.pop().unwrap_or_else(|| {
                self.jobs.push(None);
                self.jobs.len() - 1
            });
            self.jobs[place] = Some(job);
            self.ends.push(Reverse((now + time as u64, place)));
        }
    }
}
