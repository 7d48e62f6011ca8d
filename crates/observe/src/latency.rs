//! Latency histograms, fine enough for a 99.9th percentile.

use crate::stripe::StripedCounters;

/// Latencies below two to this power, in nanoseconds, are in the first bucket.
const MIN_BITS: u32 = 6;
/// Latencies from two to this power on (34 s) are in the last bucket.
const MAX_BITS: u32 = 35;
/// Buckets per power of two: a quantile is at most an eighth above the truth, and half of that on average.
const BUCKETS_PER_OCTAVE: usize = 8;
const BUCKETS: usize = (MAX_BITS - MIN_BITS) as usize * BUCKETS_PER_OCTAVE + 1;
/// Index of the sum of all latencies, after the buckets.
const SUM: usize = BUCKETS;
const NUMBERS: usize = BUCKETS + 1;

/// A latency histogram that many threads record to.
#[derive(Debug)]
pub struct LatencyHistogram(StripedCounters<NUMBERS>);

/// The state of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencySnapshot([u64; NUMBERS]);

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram(StripedCounters::new())
    }
}

impl LatencyHistogram {
    /// Records a latency that represents `weight` measurements.
    #[inline]
    pub fn record(&self, nanos: u64, weight: u64) {
        let mine = self.0.local();
        mine.add(bucket(nanos), weight);
        mine.add(SUM, nanos.saturating_mul(weight));
    }

    /// The current state.
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot(self.0.sums())
    }
}

impl Default for LatencySnapshot {
    fn default() -> LatencySnapshot {
        LatencySnapshot([0; NUMBERS])
    }
}

impl LatencySnapshot {
    /// The number of measurements.
    pub fn count(&self) -> u64 {
        self.0[..BUCKETS].iter().sum()
    }

    /// Their sum, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.0[SUM]
    }

    /// The measurements made after `before`.
    #[must_use]
    pub fn since(&self, before: &LatencySnapshot) -> LatencySnapshot {
        let mut since = self.clone();
        since.0.iter_mut().zip(&before.0).for_each(|(now, then)| *now = now.wrapping_sub(*then));
        since
    }

    /// The quantile in basis points, in nanoseconds; `None` without measurements. At most an eighth above the truth.
    pub fn quantile(&self, bps: u64) -> Option<u64> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(bps)).div_ceil(10_000).max(1);
        let mut below = 0u128;
        let at = self.0[..BUCKETS].iter().position(|in_bucket| {
            below += u128::from(*in_bucket);
            below >= rank
        })?;
        (count > 0).then(|| end(at))
    }

    /// The number of measurements below `nanos`. Exact at powers of two from 64 on; otherwise the whole bucket is counted.
    pub fn below(&self, nanos: u64) -> u64 {
        match nanos {
            0 => 0,
            _ => self.0[..=bucket(nanos - 1)].iter().sum(),
        }
    }
}

/// The bucket of a latency.
#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < 1 << MIN_BITS {
        return 0;
    }
    let bits = nanos.ilog2();
    if bits >= MAX_BITS {
        return BUCKETS - 1;
    }
    let part = (nanos >> (bits - BUCKETS_PER_OCTAVE.ilog2())) as usize & (BUCKETS_PER_OCTAVE - 1);
    (bits - MIN_BITS) as usize * BUCKETS_PER_OCTAVE + part + 1
}

/// The end of a bucket, in nanoseconds.
fn end(at: usize) -> u64 {
    let Some(at) = at.checked_sub(1) else { return 1 << MIN_BITS };
    let (bits, part) = (MIN_BITS + (at / BUCKETS_PER_OCTAVE) as u32, (at % BUCKETS_PER_OCTAVE) as u64);
    (BUCKETS_PER_OCTAVE as u64 + part + 1) << (bits - BUCKETS_PER_OCTAVE.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_ends_close_above_it() {
        let mut nanos = 1u64;
        while nanos < 1 << MAX_BITS {
            for nanos in [nanos - 1, nanos, nanos + 1] {
                let end = end(bucket(nanos));
                assert!(nanos < end, "{nanos} is before {end}");
                assert!(
                    nanos < 64 || end <= nanos + nanos / BUCKETS_PER_OCTAVE as u64 + 1,
                    "{end} is too far from {nanos}"
                );
            }
            nanos += nanos / 3 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let latency = LatencyHistogram::default();
        assert_eq!(latency.snapshot().quantile(5_000), None);
        (1..=1_000u64).for_each(|micros| latency.record(micros * 1_000, 1));
        let snapshot = latency.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum()), (1_000, 500_500_000));
        for (bps, truth) in [(5_000, 500_000), (9_900, 990_000), (9_990, 999_000), (10_000, 1_000_000), (0, 1_000)] {
            let measured = snapshot.quantile(bps).unwrap();
            assert!((truth..=truth + truth / 8 + 1).contains(&measured), "{bps}: {measured} for {truth}");
        }
    }

    #[test]
    fn new_measurements_are_separated_and_weighed() {
        let latency = LatencyHistogram::default();
        latency.record(100, 1);
        let before = latency.snapshot();
        latency.record(1_000_000, 8);
        let since = latency.snapshot().since(&before);
        assert_eq!((since.count(), since.sum()), (8, 8_000_000));
        assert!(since.quantile(1).unwrap() >= 1_000_000);
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact() {
        let latency = LatencyHistogram::default();
        [1, 63, 64, 65, 127, 128, 4_095, 4_096, u64::MAX].into_iter().for_each(|nanos| latency.record(nanos, 1));
        let snapshot = latency.snapshot();
        let below: Vec<_> = [0, 64, 128, 4_096, 1 << 40].into_iter().map(|nanos| snapshot.below(nanos)).collect();
        assert_eq!(below, [0, 2, 5, 7, 9]);
    }
}
