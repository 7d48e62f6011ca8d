//! How long debits and calls of other regions took in the last minute. The store counts since its start.

use std::collections::VecDeque;

use tollgate_store::{Durations, SharedStatus};

/// Samples of what took how long, one a second.
#[derive(Debug, Default)]
pub(super) struct RegionSamples(VecDeque<Vec<RegionDurations>>);

/// How long something took in another region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionDurations {
    /// From the first take of a debit to its answer.
    pub lag: Durations,
    /// Calls for counters that the region owns.
    pub calls: Durations,
}

/// Samples that are retained: the first and the last are a minute apart.
const MAX_SAMPLES: usize = 61;

impl RegionSamples {
    pub(super) fn add(&mut self, SharedStatus { guard, debits, .. }: &SharedStatus) {
        let calls = guard.calls_elsewhere.iter().cloned().chain(std::iter::repeat_with(Durations::default));
        let sample = debits.iter().zip(calls).map(|(debit, calls)| RegionDurations { lag: debit.lag.clone(), calls });
        if self.0.len() == MAX_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample.collect());
    }

    /// The last minute, or the time since the start, by region.
    pub(super) fn last_minute(&self) -> Vec<RegionDurations> {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return Vec::new() };
        let since = |now: &RegionDurations, then: &RegionDurations| RegionDurations {
            lag: now.lag.since(&then.lag),
            calls: now.calls.since(&then.calls),
        };
        last.iter().zip(first).map(|(now, then)| since(now, then)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_store::DebitStatus;

    use super::*;

    #[test]
    fn only_the_last_minute_counts() {
        let mut samples = RegionSamples::default();
        assert_eq!(samples.last_minute(), []);
        // In each second one debit takes 50 ms; in the first 40 s, one takes a second, too.
        for second in 0..=100u64 {
            let lag = Durations { buckets: vec![(0.05, second), (1.0, second.min(40))], sum: 0.0 };
            let debits = vec![DebitStatus { lag, ..DebitStatus::default() }];
            samples.add(&SharedStatus { debits, ..SharedStatus::default() });
            let lags = samples.last_minute().remove(0).lag;
            let seconds = second.min(60);
            assert_eq!(lags.count(), seconds + second.min(40) - (second - seconds).min(40), "{second}");
            let worst = (second > 0).then_some(if second < 100 { 1.0 } else { 0.05 });
            assert_eq!(lags.quantile(0.99), worst, "{second}");
        }
    }
}
