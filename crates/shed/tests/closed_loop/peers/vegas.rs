//! Vegas of Netflix's concurrency-limits, with its defaults.

use tollgate_shed::Class;

use super::MeanWindow;
use crate::cap::Cap;
use crate::random::Random;

const INITIAL: f64 = 20.0;
const MAX: f64 = 1_000.0;
const PROBE_MULTIPLIER: f64 = 30.0;

pub(crate) struct Vegas {
    limit: f64,
    no_load: Option<f64>,
    probe_windows: f64,
    probe_jitter: f64,
    in_flight: u32,
    window: MeanWindow,
    random: Random,
}

impl Vegas {
    pub(crate) fn new(seed: u64) -> Vegas {
        let mut random = Random::new(seed, 5);
        let probe_jitter = 0.5 + 0.5 * random.unit();
        let window = MeanWindow::default();
        Vegas { limit: INITIAL, no_load: None, probe_windows: 0.0, probe_jitter, in_flight: 0, window, random }
    }

    fn update(&mut self, rtt: f64, peak: u32) {
        self.probe_windows += 1.0;
        if self.probe_jitter * PROBE_MULTIPLIER * self.limit <= self.probe_windows {
            self.probe_jitter = 0.5 + 0.5 * self.random.unit();
            self.probe_windows = 0.0;
            self.no_load = Some(rtt);
            return;
        }
        let Some(no_load) = self.no_load.filter(|no_load| *no_load <= rtt) else {
            self.no_load = Some(rtt);
            return;
        };
        if f64::from(peak) * 2.0 < self.limit {
            return;
        }
        let queue = (self.limit * (1.0 - no_load / rtt)).ceil();
        let step = self.limit.log10().max(1.0);
        let next = if queue <= step {
            self.limit + 6.0 * step
        } else if queue < 3.0 * step {
            self.limit + step
        } else if queue > 6.0 * step {
            self.limit - step
        } else {
            self.limit
        };
        self.limit = next.clamp(1.0, MAX);
    }
}

impl Cap for Vegas {
    type Begun = u64;

    fn try_acquire(&mut self, _: Class, now: u64) -> Option<u64> {
        (f64::from(self.in_flight) < self.limit.floor()).then(|| {
            self.in_flight += 1;
            now
        })
    }

    fn release(&mut self, begun: u64, now: u64) {
        if let Some((rtt, peak)) = self.window.add((now - begun) as f64, self.in_flight, now) {
            self.update(rtt, peak);
        }
        self.in_flight -= 1;
    }

    fn limit(&self) -> f64 {
        self.limit
    }
}
