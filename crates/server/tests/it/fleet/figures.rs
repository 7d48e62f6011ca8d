//! What a load came to: how long its callers waited, what they saw, and how many of them were let pass.

use std::collections::VecDeque;
use std::fmt;

use tollgate_core::Source;

use crate::fleet::load::{Answer, Sample};

/// A load in numbers; times in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    /// What callers saw that was no decision.
    pub(crate) errors: Vec<String>,
    /// Decisions that the store had no part in.
    pub(crate) without_store: usize,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Figures {
    pub(crate) fn of(samples: &[Sample]) -> Figures {
        let mut times: Vec<u64> = samples.iter().map(|sample| sample.ended.saturating_sub(sample.begun)).collect();
        times.sort_unstable();
        let errors = samples.iter().filter_map(|sample| match &sample.answer {
            Answer::Error(error) => Some(error.clone()),
            Answer::Decided { .. } => None,
        });
        Figures {
            requests: samples.len(),
            errors: errors.collect(),
            without_store: samples.iter().filter(|sample| sample.answer.is_without_store()).count(),
            p50: share(&times, 500),
            p99: share(&times, 990),
            p999: share(&times, 999),
            max: times.last().copied().unwrap_or(0),
        }
    }
}

/// The time within which so many of a thousand were answered.
fn share(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { requests, errors, without_store, .. } = self;
        write!(f, "{requests:6} requests, {} errors, {without_store:5} without the store", errors.len())?;
        let [p50, p99, p999, max] = [self.p50, self.p99, self.p999, self.max].map(|micros| micros as f64 / 1000.0);
        write!(f, "; p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} ms")
    }
}

impl Answer {
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Answer::Decided { allowed: true, .. })
    }

    /// Whether it was decided by somebody who does not count for the fleet. A remembered refusal was the store's.
    pub(crate) fn is_without_store(&self) -> bool {
        matches!(self, Answer::Decided { source, .. } if *source > Source::Cache)
    }
}

/// How many of these were let pass.
pub(crate) fn admitted<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> usize {
    samples.into_iter().filter(|sample| sample.answer.is_allowed()).count()
}

/// The most that were let pass in any stretch of time of this length. When a request was decided is known only to lie between
/// its beginning and its end, so those count that lie in the stretch as a whole: never more than truly were.
pub(crate) fn most_within<'s>(samples: impl IntoIterator<Item = &'s Sample>, length: u64) -> usize {
    let mut allowed: Vec<&Sample> = samples.into_iter().filter(|sample| sample.answer.is_allowed()).collect();
    allowed.sort_unstable_by_key(|sample| sample.ended);
    let mut inside: VecDeque<u64> = VecDeque::new();
    let mut most = 0;
    for sample in allowed {
        inside.push_back(sample.begun);
        // The stretch ends with this one.
        inside.retain(|begun| begun + length > sample.ended);
        most = most.max(inside.len());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(begun: u64, ended: u64, allowed: bool, source: Source) -> Sample {
        Sample { server: 0, ask: 0, begun, ended, answer: Answer::Decided { allowed, source } }
    }

    #[test]
    fn times_are_those_of_the_sorted_requests() {
        let samples: Vec<Sample> = (1..=1000).rev().map(|time| sample(5, 5 + time, true, Source::Store)).collect();
        let figures = Figures::of(&samples);
        assert_eq!((figures.p50, figures.p99, figures.p999, figures.max), (500, 990, 999, 1000));
        let figures = Figures::of(&samples[..3]);
        assert_eq!((figures.p50, figures.p99, figures.p999, figures.max), (999, 1000, 1000, 1000));
        assert_eq!(Figures::of(&[]).max, 0);
    }

    #[test]
    fn errors_and_local_answers_are_counted() {
        let mut samples: Vec<Sample> = [Source::Store, Source::Cache, Source::Local, Source::Assumed, Source::Shed]
            .map(|source| sample(0, 1, false, source))
            .to_vec();
        samples.push(Sample { answer: Answer::Error("gone".to_owned()), ..sample(0, 1, true, Source::Store) });
        let figures = Figures::of(&samples);
        assert_eq!((figures.requests, figures.without_store), (6, 3));
        assert_eq!(figures.errors, ["gone"]);
        assert_eq!(admitted(&samples), 0);
    }

    #[test]
    fn windows_hold_what_lies_in_them_as_a_whole() {
        let at = |begun, ended| sample(begun, ended, true, Source::Store);
        let samples = [at(0, 1), at(3, 4), at(9, 11), at(10, 12), at(12, 13)];
        assert_eq!(most_within(&samples, 1), 0);
        assert_eq!(most_within(&samples, 2), 1);
        assert_eq!(most_within(&samples, 5), 3);
        assert_eq!(most_within(&samples, 11), 4);
        assert_eq!(most_within(&samples, 100), 5);
        let refused = samples.map(|one| Sample { answer: Answer::Error(String::new()), ..one });
        assert_eq!(most_within(&refused, 100), 0);
    }
}
