//! How many units of a key the requests of this server take.

use tollgate_core::Span;

use crate::clock::Steady;

/// A rate over the last second or, for rarer requests, the last [`MIN_REQUESTS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// When the current window began.
    began: Steady,
    /// Units and requests since then.
    units: u64,
    requests: u32,
    /// The units a second of the window before, and its length in seconds. Zero if there was none.
    before: f64,
    length: f64,
    last: Steady,
}

/// The shortest window.
const MIN_TIME: Span = Span::from_secs(1);
/// A window has at least this many requests: of fewer, the rate is mostly chance.
const MIN_REQUESTS: u32 = 16;

impl Demand {
    /// A key that had `requests` in the last `time`.
    pub(super) fn new(now: Steady, requests: u32, time: Span) -> Demand {
        let began = Steady::from_micros(now.as_micros().saturating_sub(time.as_micros()));
        Demand { began, units: u64::from(requests), requests, before: 0.0, length: 0.0, last: now }
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, now: Steady, units: u64) {
        self.units = self.units.saturating_add(units);
        self.requests = self.requests.saturating_add(1);
        self.last = now;
        let time = now.since(self.began);
        if time >= MIN_TIME && self.requests >= MIN_REQUESTS {
            self.length = seconds(time);
            self.before = self.units as f64 / self.length;
            (self.began, self.units, self.requests) = (now, 0, 0);
        }
    }

    /// Units a second.
    pub(super) fn rate(&self, now: Steady) -> f64 {
        let time = seconds(now.since(self.began));
        if self.length > 0.0 {
            let whole = self.length.max(time);
            return (self.before * (self.length - time).max(0.0) + self.units as f64) / whole;
        }
        // The window began with a request: n requests have n - 1 gaps. Of so few gaps, their number by their time is on
        // average too large a rate, and one gap less is right.
        let gaps = f64::from(self.requests.saturating_sub(2).max(1));
        self.units as f64 * gaps / f64::from(self.requests.max(1)) / time.max(MIN_GAP)
    }

    /// When the last request came.
    pub(super) fn last(&self) -> Steady {
        self.last
    }
}

/// The shortest time from which a rate is computed, in seconds.
const MIN_GAP: f64 = 0.001;

pub(super) fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Steady {
        Steady::from_micros(1_000_000_000 + millis * 1_000)
    }

    /// Requests at a steady rate are measured as such, at any moment.
    #[test]
    fn a_steady_rate_is_measured() {
        for (gap, rate) in [(10, 100.0), (100, 10.0), (2_000, 0.5)] {
            let mut demand = Demand::new(at(0), 1, Span::ZERO);
            for number in 1..200 {
                demand.record(at(number * gap), 1);
                let measured = demand.rate(at(number * gap));
                if number > 4 {
                    assert!((measured / rate - 1.0).abs() < 0.3, "{rate} measured as {measured} after {number}");
                }
            }
        }
    }

    #[test]
    fn a_rate_that_falls_is_noticed_without_requests() {
        let mut demand = Demand::new(at(0), 1, Span::ZERO);
        for number in 1..=1_000 {
            demand.record(at(number * 10), 1);
        }
        assert!(demand.rate(at(20_000)) < 11.0, "{}", demand.rate(at(20_000)));
    }

    #[test]
    fn units_count_not_requests() {
        let mut demand = Demand::new(at(0), 1, Span::ZERO);
        for number in 1..=100 {
            demand.record(at(number * 100), 50);
        }
        assert!((demand.rate(at(10_000)) / 500.0 - 1.0).abs() < 0.2);
    }
}
