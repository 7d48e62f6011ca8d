//! Latencies of a window, as a histogram that many threads record to without locks.

use std::sync::atomic::{AtomicU32, Ordering};

/// Latencies below two to this power, in nanoseconds (16 µs), are in the first bucket.
const MIN_BITS: u32 = 14;
/// Latencies from two to this power on (69 s) are in the last bucket.
const MAX_BITS: u32 = 36;
/// Buckets of a power of two, as a power of two. A bucket is at most 3 % wide, and a median lies within one.
const PART_BITS: u32 = 5;
/// The most that one latency counts, in medians.
const CLIP: f64 = 3.0;
const BUCKETS: usize = ((MAX_BITS - MIN_BITS) as usize) << PART_BITS;

/// The latencies of the window that has begun.
pub(super) struct Samples([AtomicU32; BUCKETS]);

/// What the latencies of a window come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latencies {
    pub(super) count: u64,
    /// The mean in nanoseconds, where latencies above [`CLIP`] medians count as that many: of few samples it varies less
    /// than the median, and unlike the mean it does not follow a tail.
    pub(super) typical: f64,
}

impl Samples {
    pub(super) fn new() -> Samples {
        Samples(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[inline]
    pub(super) fn record(&self, nanos: u64) {
        self.0[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum()
    }

    /// Takes all latencies out. Those recorded meanwhile are in this window or in the next one.
    pub(super) fn take(&self) -> Option<Latencies> {
        let mut counts = [0; BUCKETS];
        for (taken, count) in counts.iter_mut().zip(&self.0) {
            // Most buckets are empty, and a load is cheaper than a swap.
            if count.load(Ordering::Relaxed) > 0 {
                *taken = count.swap(0, Ordering::Relaxed);
            }
        }
        let count: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let most = CLIP * median(&counts, count)?;
        let sum: f64 = counts.iter().enumerate().map(|(at, count)| f64::from(*count) * middle(at).min(most)).sum();
        Some(Latencies { count, typical: sum / count as f64 })
    }
}

fn median(counts: &[u32; BUCKETS], count: u64) -> Option<f64> {
    let rank = count as f64 / 2.0;
    let mut below = 0.0;
    for (at, &in_bucket) in counts.iter().enumerate().filter(|(_, in_bucket)| **in_bucket > 0) {
        let in_bucket = f64::from(in_bucket);
        if below + in_bucket >= rank {
            return Some(start(at) + (start(at + 1) - start(at)) * (rank - below) / in_bucket);
        }
        below += in_bucket;
    }
    None
}

fn middle(at: usize) -> f64 {
    f64::midpoint(start(at), start(at + 1))
}

#[inline]
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.clamp(1 << MIN_BITS, (1 << MAX_BITS) - 1);
    let bits = nanos.ilog2();
    let part = (nanos >> (bits - PART_BITS)) as usize & ((1 << PART_BITS) - 1);
    // The clamp bounds it; the minimum lets the compiler see that.
    ((((bits - MIN_BITS) as usize) << PART_BITS) + part).min(BUCKETS - 1)
}

/// The least latency of a bucket, in nanoseconds.
fn start(at: usize) -> f64 {
    let (bits, part) = (MIN_BITS + (at >> PART_BITS) as u32, (at & ((1 << PART_BITS) - 1)) as u64);
    (((1 << PART_BITS) + part) << (bits - PART_BITS)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_the_bucket_that_begins_below_it() {
        let mut nanos = 1u64 << MIN_BITS;
        while nanos < 1 << MAX_BITS {
            let at = bucket(nanos);
            assert!(start(at) <= nanos as f64 && (nanos as f64) < start(at + 1), "{nanos}");
            assert!(start(at + 1) <= start(at) * 1.032, "{nanos}");
            nanos += nanos / 7;
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn latencies_come_to_their_mean() {
        let samples = Samples::new();
        assert_eq!(samples.take(), None);
        (1..=999u64).for_each(|millis| samples.record(millis * 1_000_000));
        assert_eq!(samples.count(), 999);
        let taken = samples.take().unwrap();
        assert_eq!(taken.count, 999);
        assert!((taken.typical / 5e8 - 1.0).abs() < 0.01, "{taken:?}");
        assert_eq!(samples.take(), None);
    }

    #[test]
    fn a_tail_counts_as_three_medians() {
        for tail in [110_000_000, 60_000_000_000] {
            let samples = Samples::new();
            (0..90).for_each(|_| samples.record(10_000_000));
            (0..10).for_each(|_| samples.record(tail));
            let taken = samples.take().unwrap();
            assert!((taken.typical / 12e6 - 1.0).abs() < 0.03, "{taken:?}");
        }
    }
}
