//! Gradient2 of Netflix's concurrency-limits, with its defaults.

use tollgate_shed::Class;

use super::MeanWindow;
use crate::cap::Cap;

const MIN: f64 = 20.0;
const MAX: f64 = 200.0;
const QUEUE: f64 = 4.0;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
const LONG_WINDOWS: f64 = 600.0;
const WARM_UP: u32 = 10;

pub(crate) struct Gradient2 {
    limit: f64,
    /// The long-term latency.
    long: f64,
    windows: u32,
    in_flight: u32,
    window: MeanWindow,
}

impl Gradient2 {
    pub(crate) fn new() -> Gradient2 {
        Gradient2 { limit: MIN, long: 0.0, windows: 0, in_flight: 0, window: MeanWindow::default() }
    }

    fn update(&mut self, short: f64, peak: u32) {
        self.windows += 1;
        if self.windows <= WARM_UP {
            self.long += (short - self.long) / f64::from(self.windows);
        } else {
            self.long += (short - self.long) * 2.0 / (LONG_WINDOWS + 1.0);
        }
        if self.long / short > 2.0 {
            self.long *= 0.95;
        }
        if f64::from(peak) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * self.long / short).clamp(0.5, 1.0);
        let next = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + next * SMOOTHING).clamp(MIN, MAX);
    }
}

impl Cap for Gradient2 {
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
