//! All decisions over time, at several resolutions.

use tollgate::{Span, Timestamp};

use super::buckets::{Advance, Buckets, Line};
use super::{HistoryPoint, Quantiles, RULINGS};
use crate::latency::LatencySnapshot;

/// A time range and its resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryRange {
    /// Second by second.
    TenMinutes,
    /// Ten seconds each.
    TwoHours,
    /// Minute by minute.
    Day,
}

/// The points of a range. A gap is a time in which the server did not run.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryLine {
    /// The beginning of the first point.
    pub from: Timestamp,
    /// The time of each point.
    pub step: Span,
    /// Oldest first; `None` in a gap. The newest covers less than a step, perhaps.
    pub points: Vec<Option<HistoryPoint>>,
}

/// The points of one range.
#[derive(Debug)]
pub(super) struct Series {
    buckets: Buckets,
    line: Line<HistoryPoint>,
    /// Decisions of the newest bucket.
    counts: [f64; RULINGS],
    /// Latencies before it.
    before: LatencySnapshot,
}

/// What happened between two samples.
pub(super) struct Counted<'s> {
    pub(super) counts: [u64; RULINGS],
    pub(super) before: &'s LatencySnapshot,
    pub(super) after: &'s LatencySnapshot,
    pub(super) took: Span,
}

impl HistoryRange {
    /// All ranges, the finest first.
    pub const ALL: [HistoryRange; 3] = [HistoryRange::TenMinutes, HistoryRange::TwoHours, HistoryRange::Day];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            HistoryRange::TenMinutes => "10m",
            HistoryRange::TwoHours => "2h",
            HistoryRange::Day => "24h",
        }
    }

    /// The time of a point.
    pub fn step(self) -> Span {
        match self {
            HistoryRange::TenMinutes => Span::from_secs(1),
            HistoryRange::TwoHours => Span::from_secs(10),
            HistoryRange::Day => Span::from_secs(60),
        }
    }

    /// The number of points.
    pub fn points(self) -> usize {
        match self {
            HistoryRange::TenMinutes => 600,
            HistoryRange::TwoHours => 720,
            HistoryRange::Day => 1_440,
        }
    }
}

impl Series {
    pub(super) fn new(range: HistoryRange) -> Series {
        Series {
            buckets: Buckets::new(range.step(), range.points()),
            line: Line::default(),
            counts: [0.0; RULINGS],
            before: LatencySnapshot::default(),
        }
    }

    pub(super) fn sample(&mut self, now: Timestamp, counted: &Counted<'_>) {
        let advance = self.buckets.advance(now, counted.took);
        match advance {
            Advance::Same => self.counts.iter_mut().zip(counted.counts).for_each(|(sum, count)| *sum += count as f64),
            Advance::Next { .. } => {
                let share = self.buckets.share(counted.took);
                self.counts = counted.counts.map(|count| count as f64 * share);
                self.before = counted.before.clone();
            }
        }
        let point = HistoryPoint {
            rates: self.counts.map(|count| self.buckets.rate(count)),
            took: Quantiles::from_snapshot(&counted.after.since(&self.before)),
        };
        self.line.apply(advance, self.buckets.max, point);
    }

    pub(super) fn newest(&self) -> Option<(Timestamp, HistoryPoint)> {
        let newest = self.line.0.back()?.as_ref()?;
        Some((self.buckets.from(1), *newest))
    }

    pub(super) fn line(&self) -> HistoryLine {
        let points: Vec<_> = self.line.0.iter().copied().collect();
        HistoryLine { from: self.buckets.from(points.len()), step: self.buckets.step, points }
    }

    /// Takes the points of an earlier run, as far as they are before `now`.
    pub(super) fn restore(&mut self, saved: HistoryLine, now: Timestamp, before: &LatencySnapshot) {
        let step = self.buckets.step.as_micros().max(1);
        let current = self.buckets.bucket(now);
        if saved.step != self.buckets.step || saved.points.is_empty() {
            return;
        }
        let first = saved.from.as_micros() / step;
        let past = usize::try_from((current + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let mut points = saved.points;
        points.truncate(past);
        points.drain(..points.len().saturating_sub(self.buckets.max));
        let Some(newest) = (first + points.len().min(past) as u64).checked_sub(1).filter(|_| !points.is_empty()) else {
            return;
        };
        if !self.buckets.restore(Timestamp::from_micros(newest.saturating_mul(step)), points.len(), now) {
            return;
        }
        let seconds = self.buckets.took.as_micros() as f64 / 1e6;
        self.counts =
            points.last().copied().flatten().map_or([0.0; RULINGS], |point| point.rates.map(|rate| rate * seconds));
        self.line = Line(points.into());
        self.before = before.clone();
    }
}
