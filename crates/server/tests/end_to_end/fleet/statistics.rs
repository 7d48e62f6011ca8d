//! Statistics of a load: latencies, errors, and how many requests were admitted.

use std::collections::VecDeque;
use std::fmt;

use tollgate_core::Source;

use crate::fleet::load::{CheckResult, Sample};

/// Statistics of a load; latencies in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadStatistics {
    pub(crate) requests: usize,
    /// The errors of requests without a decision.
    pub(crate) errors: Vec<String>,
    /// Decisions without the store.
    pub(crate) without_store: usize,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl LoadStatistics {
    pub(crate) fn from_samples(samples: &[Sample]) -> LoadStatistics {
        let mut latencies: Vec<u64> =
            samples.iter().map(|sample| sample.ended.saturating_sub(sample.started)).collect();
        latencies.sort_unstable();
        let errors = samples.iter().filter_map(|sample| match &sample.result {
            CheckResult::Error(error) => Some(error.clone()),
            CheckResult::Decided { .. } => None,
        });
        LoadStatistics {
            requests: samples.len(),
            errors: errors.collect(),
            without_store: samples.iter().filter(|sample| sample.result.is_without_store()).count(),
            p50: percentile(&latencies, 500),
            p99: percentile(&latencies, 990),
            p999: percentile(&latencies, 999),
            max: latencies.last().copied().unwrap_or(0),
        }
    }
}

/// The latency that this many of a thousand requests do not exceed.
fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

impl fmt::Display for LoadStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadStatistics { requests, errors, without_store, .. } = self;
        write!(f, "{requests:6} requests, {} errors, {without_store:5} without the store", errors.len())?;
        let [p50, p99, p999, max] = [self.p50, self.p99, self.p999, self.max].map(|micros| micros as f64 / 1000.0);
        write!(f, "; p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} ms")
    }
}

impl CheckResult {
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, CheckResult::Decided { allowed: true, .. })
    }

    /// Whether it was decided without the store. A cached refusal is the store's.
    pub(crate) fn is_without_store(&self) -> bool {
        matches!(self, CheckResult::Decided { source, .. } if *source > Source::Cache)
    }
}

/// How many of these requests were admitted.
pub(crate) fn admitted<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> usize {
    samples.into_iter().filter(|sample| sample.result.is_allowed()).count()
}

/// The most requests that were admitted in any window of this length. The decision about a request is at an unknown time between
/// its start and its end, so only requests that lie in the window as a whole are counted: never too many.
pub(crate) fn max_admitted_within<'s>(samples: impl IntoIterator<Item = &'s Sample>, length: u64) -> usize {
    let mut allowed: Vec<&Sample> = samples.into_iter().filter(|sample| sample.result.is_allowed()).collect();
    allowed.sort_unstable_by_key(|sample| sample.ended);
    let mut window: VecDeque<u64> = VecDeque::new();
    let mut max = 0;
    for sample in allowed {
        window.push_back(sample.started);
        // The window ends with this request.
        window.retain(|started| started + length > sample.ended);
        max = max.max(window.len());
    }
    max
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(started: u64, ended: u64, allowed: bool, source: Source) -> Sample {
        Sample { server: 0, check: 0, started, ended, result: CheckResult::Decided { allowed, source } }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let samples: Vec<Sample> = (1..=1000).rev().map(|time| sample(5, 5 + time, true, Source::Store)).collect();
        let statistics = LoadStatistics::from_samples(&samples);
        assert_eq!((statistics.p50, statistics.p99, statistics.p999, statistics.max), (500, 990, 999, 1000));
        let statistics = LoadStatistics::from_samples(&samples[..3]);
        assert_eq!((statistics.p50, statistics.p99, statistics.p999, statistics.max), (999, 1000, 1000, 1000));
        assert_eq!(LoadStatistics::from_samples(&[]).max, 0);
    }

    #[test]
    fn errors_and_local_decisions_are_counted() {
        let mut samples: Vec<Sample> = [Source::Store, Source::Cache, Source::Local, Source::Assumed, Source::Shed]
            .map(|source| sample(0, 1, false, source))
            .to_vec();
        samples.push(Sample { result: CheckResult::Error("gone".to_owned()), ..sample(0, 1, true, Source::Store) });
        let statistics = LoadStatistics::from_samples(&samples);
        assert_eq!((statistics.requests, statistics.without_store), (6, 3));
        assert_eq!(statistics.errors, ["gone"]);
        assert_eq!(admitted(&samples), 0);
    }

    #[test]
    fn a_window_counts_requests_that_lie_in_it_as_a_whole() {
        let at = |started, ended| sample(started, ended, true, Source::Store);
        let samples = [at(0, 1), at(3, 4), at(9, 11), at(10, 12), at(12, 13)];
        assert_eq!(max_admitted_within(&samples, 1), 0);
        assert_eq!(max_admitted_within(&samples, 2), 1);
        assert_eq!(max_admitted_within(&samples, 5), 3);
        assert_eq!(max_admitted_within(&samples, 11), 4);
        assert_eq!(max_admitted_within(&samples, 100), 5);
        let refused = samples.map(|one| Sample { result: CheckResult::Error(String::new()), ..one });
        assert_eq!(max_admitted_within(&refused, 100), 0);
    }
}
