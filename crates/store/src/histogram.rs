//! Durations by size.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Span;

/// A histogram of durations, for metrics.
#[derive(Debug, Default)]
pub(crate) struct DurationHistogram {
    /// By bound, and those past the last one.
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The counts of a histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Upper bounds in seconds, each with the number of durations up to it that are longer than the bound before. The last
    /// bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum in seconds.
    pub sum: f64,
}

/// In microseconds.
const BOUNDS: [u64; 14] = [
    2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 150_000, 200_000, 250_000, 350_000, 500_000, 1_000_000, 2_000_000,
    10_000_000,
];

impl DurationHistogram {
    pub(crate) fn record(&self, duration: Span) {
        let micros = duration.as_micros();
        let index = BOUNDS.partition_point(|bound| *bound < micros);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Durations {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        Durations { buckets: bounds.zip(counts).collect(), sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

impl Durations {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The durations that were added since then.
    #[must_use]
    pub fn since(&self, before: &Durations) -> Durations {
        let before_by = |at: usize| before.buckets.get(at).map_or(0, |(_, count)| *count);
        let buckets = self.buckets.iter().enumerate();
        Durations {
            buckets: buckets.map(|(at, (bound, count))| (*bound, count.saturating_sub(before_by(at)))).collect(),
            sum: (self.sum - before.sum).max(0.0),
        }
    }

    /// The bound in seconds that this share of the durations, from 0 to 1, does not exceed. `None` without durations.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let enough = (self.count() as f64 * share).ceil().max(1.0);
        let mut sum = 0;
        self.buckets.iter().find_map(|(bound, count)| {
            sum += count;
            (sum as f64 >= enough).then_some(*bound)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_size() {
        let histogram = DurationHistogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        for millis in 1..=100 {
            histogram.record(Span::from_micros(millis * 1_000));
        }
        histogram.record(Span::from_secs(60));
        let durations = histogram.snapshot();
        histogram.record(Span::from_micros(40_000));
        let since = histogram.snapshot().since(&durations);
        assert_eq!((since.count(), since.quantile(0.5)), (1, Some(0.05)));
        assert_eq!((durations.count(), durations.sum), (101, 65.05));
        assert_eq!(durations.buckets[..3], [(0.0025, 2), (0.005, 3), (0.01, 5)]);
        assert_eq!(
            [0.0, 0.05, 0.99, 1.0].map(|share| durations.quantile(share).unwrap()),
            [0.0025, 0.01, 0.1, f64::INFINITY]
        );
    }
}
