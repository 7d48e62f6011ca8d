//! The time axis of a line: buckets of equal length, aligned to the clock.

use std::collections::VecDeque;

use tollgate::{Span, Timestamp};

use super::{STEP, rounded_steps};

/// The position of a line on the clock. Lines that are sampled together share one.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    pub(super) step: Span,
    pub(super) max: usize,
    /// The number of the newest bucket since 1970; `None` before the first sample.
    pub(super) newest: Option<u64>,
    /// Buckets since the first sample, at most `max`.
    pub(super) len: usize,
    /// The time that the newest bucket covers so far.
    pub(super) took: Span,
}

/// What a sample adds to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// More of the newest bucket.
    Same,
    /// New buckets.
    Next {
        /// Buckets to drop: the clock was set back.
        dropped: usize,
        /// Buckets in which nobody sampled.
        gap: usize,
        /// Buckets that the sample covers.
        filled: usize,
    },
}

/// Values by bucket, oldest first; `None` in a gap.
#[derive(Clone, Debug)]
pub(super) struct Line<T>(pub(super) VecDeque<Option<T>>);

impl Buckets {
    pub(super) fn new(step: Span, max: usize) -> Buckets {
        Buckets { step, max, newest: None, len: 0, took: Span::ZERO }
    }

    /// Moves to the bucket of a sample that covers the time `took` before `now`.
    pub(super) fn advance(&mut self, now: Timestamp, took: Span) -> Advance {
        let bucket = self.bucket(now);
        let covered = rounded_steps(took, self.step).min(self.max);
        let advance = match self.newest {
            None => Advance::Next { dropped: 0, gap: 0, filled: covered },
            Some(newest) if newest == bucket => Advance::Same,
            // Samples that come a little early fall into the bucket before.
            Some(newest) if newest == bucket + 1 => return self.extend(took),
            Some(newest) if newest > bucket => {
                let dropped = usize::try_from(newest - bucket).unwrap_or(usize::MAX).saturating_add(1);
                Advance::Next { dropped: dropped.min(self.len), gap: 0, filled: 1 }
            }
            Some(newest) => {
                let steps = usize::try_from(bucket - newest).unwrap_or(usize::MAX);
                // Samples that come a little late skip a bucket: that is no gap.
                let filled = if steps <= covered + 1 { steps.min(self.max) } else { covered };
                Advance::Next { dropped: 0, gap: (steps - filled).min(self.max), filled }
            }
        };
        self.newest = Some(bucket);
        match advance {
            Advance::Same => self.extend(took),
            Advance::Next { dropped, gap, filled } => {
                self.took = took.min(self.step);
                self.len = (self.len - dropped.min(self.len)).saturating_add(gap + filled).min(self.max);
                advance
            }
        }
    }

    /// Continues an axis of an earlier run, unless its newest bucket is too old, or later than now.
    pub(super) fn restore(&mut self, newest: Timestamp, len: usize, now: Timestamp) -> bool {
        let (newest, current) = (newest.as_micros() / self.step.as_micros().max(1), self.bucket(now));
        // What is older than the range would be a gap as long as the range.
        if newest > current || current - newest >= self.max as u64 || len == 0 {
            return false;
        }
        (self.newest, self.len) = (Some(newest), len.min(self.max));
        // The newest bucket may go on: its counts so far are those of its rates.
        self.took = match newest == current {
            true => now.since(self.from(1)).min(self.step),
            false => self.step,
        };
        true
    }

    /// The beginning of the first of `len` buckets.
    pub(super) fn from(&self, len: usize) -> Timestamp {
        let first = self.newest.map_or(0, |newest| (newest + 1).saturating_sub(len as u64));
        Timestamp::from_micros(first.saturating_mul(self.step.as_micros()))
    }

    /// The bucket that a sample at `now` belongs to: the one that ends about then.
    pub(super) fn bucket(&self, now: Timestamp) -> u64 {
        now.as_micros().saturating_sub(STEP.as_micros() / 2) / self.step.as_micros().max(1)
    }

    /// The part of a sample's counts that the newest bucket gets if it begins with the sample.
    pub(super) fn share(&self, took: Span) -> f64 {
        if took <= self.step { 1.0 } else { self.step.as_micros() as f64 / took.as_micros() as f64 }
    }

    /// A rate of the newest bucket so far.
    pub(super) fn rate(&self, count: f64) -> f64 {
        match self.took.as_micros() {
            0 => 0.0,
            micros => count * 1e6 / micros as f64,
        }
    }

    fn extend(&mut self, took: Span) -> Advance {
        self.took = Span::from_micros(self.took.as_micros() + took.as_micros());
        Advance::Same
    }
}

impl<T: Clone> Line<T> {
    /// Applies an advance with the value of the newest bucket.
    pub(super) fn apply(&mut self, advance: Advance, max: usize, value: T) {
        match advance {
            Advance::Same => {
                self.0.pop_back();
                self.0.push_back(Some(value));
            }
            Advance::Next { dropped, gap, filled } => {
                self.0.truncate(self.0.len().saturating_sub(dropped));
                self.0.extend(std::iter::repeat_n(None, gap));
                self.0.extend(std::iter::repeat_n(Some(value), filled));
                let excess = self.0.len().saturating_sub(max);
                self.0.drain(..excess);
            }
        }
    }
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line(VecDeque::new())
    }
}
