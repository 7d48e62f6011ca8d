//! Envoy's adaptive concurrency filter with its defaults: the median of windows of 100 ms, and the idle latency measured
//! every minute at a limit of 3.

use tollgate_shed::Class;

use crate::cap::Cap;
use crate::random::Random;

const WINDOW: u64 = 100_000_000;
const PROBE_INTERVAL: f64 = 60e9;
const JITTER: f64 = 0.15;
const PROBE_SAMPLES: usize = 50;
const MIN: f64 = 3.0;
const MAX: f64 = 1_000.0;
const BUFFER: f64 = 0.25;
/// Windows in a row with the least limit, after which the idle latency is measured early.
const AT_LEAST: u32 = 5;

pub(crate) struct Envoy {
    limit: f64,
    /// The limit before the probe that is going on, and when that began.
    probe: Option<(f64, u64)>,
    min_rtt: f64,
    samples: Vec<u64>,
    window_ends: u64,
    probe_at: u64,
    at_least: u32,
    in_flight: u32,
    random: Random,
}

impl Envoy {
    pub(crate) fn new(seed: u64) -> Envoy {
        Envoy {
            limit: MIN,
            probe: Some((MIN, 0)),
            min_rtt: 0.0,
            samples: Vec::new(),
            window_ends: 0,
            probe_at: 0,
            at_least: 0,
            in_flight: 0,
            random: Random::new(seed, 6),
        }
    }

    fn begin_probe(&mut self, now: u64) {
        self.probe = Some((self.limit, now));
        self.limit = MIN;
        self.samples.clear();
        self.at_least = 0;
    }

    fn end_probe(&mut self, before: f64, now: u64) {
        self.min_rtt = self.median();
        self.limit = before;
        self.probe = None;
        self.window_ends = now + WINDOW;
        self.probe_at = now + (PROBE_INTERVAL * (1.0 + JITTER * self.random.unit())) as u64;
    }

    fn end_window(&mut self, now: u64) {
        self.window_ends = now + WINDOW;
        if self.samples.is_empty() {
            return;
        }
        let gradient = (self.min_rtt * (1.0 + BUFFER) / self.median()).clamp(0.5, 2.0);
        let limit = self.limit * gradient;
        self.limit = (limit + limit.sqrt()).floor().clamp(MIN, MAX);
        self.at_least = if self.limit > MIN { 0 } else { self.at_least + 1 };
        if self.at_least >= AT_LEAST {
            self.begin_probe(now);
        }
    }

    fn median(&mut self) -> f64 {
        let at = self.samples.len() / 2;
        let median = *self.samples.select_nth_unstable(at).1 as f64;
        self.samples.clear();
        median
    }

    fn tick(&mut self, now: u64) {
        if self.probe.is_some() {
            return;
        }
        if now >= self.window_ends {
            self.end_window(now);
        }
        if self.probe.is_none() && now >= self.probe_at {
            self.begin_probe(now);
        }
    }
}

impl Cap for Envoy {
    type Begun = u64;

    fn try_acquire(&mut self, _: Class, now: u64) -> Option<u64> {
        self.tick(now);
        (f64::from(self.in_flight) < self.limit).then(|| {
            self.in_flight += 1;
            now
        })
    }

    fn release(&mut self, begun: u64, now: u64) {
        self.tick(now);
        self.in_flight -= 1;
        match self.probe {
            Some((_, since)) if begun < since => {}
            Some((before, _)) => {
                self.samples.push(now - begun);
                if self.samples.len() >= PROBE_SAMPLES {
                    self.end_probe(before, now);
                }
            }
            None => self.samples.push(now - begun),
        }
    }

    fn limit(&self) -> f64 {
        self.limit
    }
}
