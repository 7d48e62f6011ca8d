//! How long things take: a histogram with buckets close enough for a 99.9th percentile.

use crate::stripe::Striped;

/// Times below this many nanoseconds are in the first bucket.
const LEAST_BITS: u32 = 6;
/// Times from this power of two on (34 s) are in the last bucket.
const MOST_BITS: u32 = 35;
/// Each power of two has so many buckets, so that what is read is at most an eighth above the truth, and on average half of that.
const PARTS: usize = 8;
const BUCKETS: usize = (MOST_BITS - LEAST_BITS) as usize * PARTS + 1;
/// After the buckets: the sum of all times.
const SUM: usize = BUCKETS;
const NUMBERS: usize = BUCKETS + 1;

/// Times that were taken, on many threads.
#[derive(Debug)]
pub struct Latency(Striped<NUMBERS>);

/// Times as they stood at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times([u64; NUMBERS]);

impl Default for Latency {
    fn default() -> Latency {
        Latency(Striped::new())
    }
}

impl Latency {
    /// Something took so many nanoseconds, and stands for `weight` of its kind.
    #[inline]
    pub fn took(&self, nanos: u64, weight: u64) {
        let mine = self.0.mine();
        mine.add(bucket(nanos), weight);
        mine.add(SUM, nanos.saturating_mul(weight));
    }

    /// All times so far.
    pub fn times(&self) -> Times {
        Times(self.0.sums())
    }
}

impl Default for Times {
    fn default() -> Times {
        Times([0; NUMBERS])
    }
}

impl Times {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0[..BUCKETS].iter().sum()
    }

    /// Their sum, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.0[SUM]
    }

    /// Those that were not there before.
    #[must_use]
    pub fn since(&self, before: &Times) -> Times {
        let mut since = self.clone();
        since.0.iter_mut().zip(&before.0).for_each(|(now, then)| *now = now.wrapping_sub(*then));
        since
    }

    /// The time that so many of 10,000 do not exceed, in nanoseconds; `None` where there are no times. It is at most an eighth above
    /// the truth.
    pub fn quantile(&self, of_10_000: u64) -> Option<u64> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(of_10_000)).div_ceil(10_000).max(1);
        let mut below = 0u128;
        let at = self.0[..BUCKETS].iter().position(|in_bucket| {
            below += u128::from(*in_bucket);
            below >= rank
        })?;
        (count > 0).then(|| end(at))
    }

    /// How many are below so many nanoseconds. Exact at powers of two from 64 on, else all of the bucket are counted.
    pub fn below(&self, nanos: u64) -> u64 {
        match nanos {
            0 => 0,
            _ => self.0[..=bucket(nanos - 1)].iter().sum(),
        }
    }
}

/// The bucket of a time.
#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < 1 << LEAST_BITS {
        return 0;
    }
    let bits = nanos.ilog2();
    if bits >= MOST_BITS {
        return BUCKETS - 1;
    }
    let part = (nanos >> (bits - PARTS.ilog2())) as usize & (PARTS - 1);
    (bits - LEAST_BITS) as usize * PARTS + part + 1
}

/// Where a bucket ends, in nanoseconds.
fn end(at: usize) -> u64 {
    let Some(at) = at.checked_sub(1) else { return 1 << LEAST_BITS };
    let (bits, part) = (LEAST_BITS + (at / PARTS) as u32, (at % PARTS) as u64);
    (PARTS as u64 + part + 1) << (bits - PARTS.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_ends_close_above_it() {
        let mut nanos = 1u64;
        while nanos < 1 << MOST_BITS {
            for nanos in [nanos - 1, nanos, nanos + 1] {
                let end = end(bucket(nanos));
                assert!(nanos < end, "{nanos} is before {end}");
                assert!(nanos < 64 || end <= nanos + nanos / PARTS as u64 + 1, "{end} is too far from {nanos}");
            }
            nanos += nanos / 3 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let latency = Latency::default();
        assert_eq!(latency.times().quantile(5_000), None);
        (1..=1_000u64).for_each(|micros| latency.took(micros * 1_000, 1));
        let times = latency.times();
        assert_eq!((times.count(), times.sum()), (1_000, 500_500_000));
        for (of_10_000, truth) in
            [(5_000, 500_000), (9_900, 990_000), (9_990, 999_000), (10_000, 1_000_000), (0, 1_000)]
        {
            let told = times.quantile(of_10_000).unwrap();
            assert!((truth..=truth + truth / 8 + 1).contains(&told), "{of_10_000}: {told} for {truth}");
        }
    }

    #[test]
    fn what_is_new_is_told_apart_and_weighed() {
        let latency = Latency::default();
        latency.took(100, 1);
        let before = latency.times();
        latency.took(1_000_000, 8);
        let since = latency.times().since(&before);
        assert_eq!((since.count(), since.sum()), (8, 8_000_000));
        assert!(since.quantile(1).unwrap() >= 1_000_000);
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact() {
        let latency = Latency::default();
        [1, 63, 64, 65, 127, 128, 4_095, 4_096, u64::MAX].into_iter().for_each(|nanos| latency.took(nanos, 1));
        let times = latency.times();
        let below: Vec<_> = [0, 64, 128, 4_096, 1 << 40].into_iter().map(|nanos| times.below(nanos)).collect();
        assert_eq!(below, [0, 2, 5, 7, 9]);
    }
}
