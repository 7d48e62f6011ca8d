//! Decision rates over time: of all decisions for a day, the older the coarser, and a coarser line per rule.
//!
//! The owner calls [`History::sample`] once a second. Decisions never touch the history. Time is an argument.

mod buckets;
mod rules;
mod series;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate::{Span, Timestamp};

use crate::latency::LatencySnapshot;
use crate::observer::Observer;
use crate::outcome::DecisionOutcome;
use crate::tally::{CountKind, Peak, RowCounts, TallyRow};
use rules::RuleHistories;
use series::{Counted, Series};

pub use rules::{
    Activity, LimitResults, RefusingRule, RuleLine, SavedAxis, SavedRule, SavedRules, Sparkline, TierActivity,
};
pub use series::{HistoryLine, HistoryRange};

/// Decision rates and latencies of the last day.
#[derive(Debug)]
pub struct History {
    /// One for each range.
    series: [Series; HistoryRange::ALL.len()],
    /// The max recent samples of all counters, oldest first. Never empty.
    samples: VecDeque<CounterSample>,
    rules: RuleHistories,
}

/// The decisions of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryPoint {
    /// Decisions per second, by outcome.
    pub rates: [f64; RULINGS],
    /// Decision latency; `None` if no decision was timed.
    pub took: Option<Quantiles>,
}

/// Latency quantiles, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The number of measurements.
    pub count: u64,
}

/// The number of outcomes.
const RULINGS: usize = DecisionOutcome::ALL.len();

/// All counters at one moment.
#[derive(Debug)]
struct CounterSample {
    at: Timestamp,
    /// Time since the previous sample.
    took: Span,
    totals: [u64; RULINGS],
    unmatched: u64,
    decision: LatencySnapshot,
    store: LatencySnapshot,
}

/// The state of one row. It is dropped right after sampling, so that rows of removed rules can be freed.
#[derive(Debug)]
struct RowSample {
    row: Arc<TallyRow>,
    counts: RowCounts,
    peak: Option<Peak>,
}

/// The interval of a history point.
pub const STEP: Span = Span::from_secs(1);
/// Rates are averages over this time.
pub const RATE_WINDOW: Span = Span::from_secs(10);
/// Latency quantiles cover this time.
pub const LATENCY_WINDOW: Span = Span::from_secs(60);
/// Retained samples: those of one minute, and the one before.
const MAX_SAMPLES: usize = 61;
/// The longest time between two samples that is believed: the clock may have been set forward.
const MAX_GAP: Span = Span::from_secs(60);

impl History {
    /// Creates a history that begins at `begin` with all counters at zero.
    pub fn new(begin: Timestamp) -> History {
        let (decision, store) = (LatencySnapshot::default(), LatencySnapshot::default());
        let first = CounterSample { at: begin, took: Span::ZERO, totals: [0; RULINGS], unmatched: 0, decision, store };
        let series = HistoryRange::ALL.map(Series::new);
        History { series, samples: VecDeque::from([first]), rules: RuleHistories::default() }
    }

    /// Takes a sample of the observer's counters.
    pub fn sample(&mut self, observer: &Observer, now: Timestamp) {
        let Some(last) = self.samples.back() else { return };
        let took = elapsed_since(last.at, now);
        let rows = observer.tally().rows().into_iter();
        let rows: Vec<_> = rows.map(|row| RowSample { counts: row.counts(), peak: row.peak(now), row }).collect();
        let mut totals = [0; RULINGS];
        for RowSample { counts, .. } in &rows {
            totals
                .iter_mut()
                .zip(DecisionOutcome::ALL)
                .for_each(|(total, outcome)| *total += counts[CountKind::Outcome(outcome)]);
        }
        let sample = CounterSample {
            at: now,
            took,
            totals,
            unmatched: observer.unmatched(),
            decision: observer.decision_latency().snapshot(),
            store: observer.store_latency().snapshot(),
        };
        // Totals may shrink when rules are removed.
        let counts = std::array::from_fn(|at| totals[at].saturating_sub(last.totals[at]));
        let counted = Counted { counts, before: &last.decision, after: &sample.decision, took };
        self.series.iter_mut().for_each(|series| series.sample(now, &counted));
        push(&mut self.samples, sample, MAX_SAMPLES);
        self.rules.sample(&rows, now, took);
    }

    /// Takes the points of an earlier run of this server.
    pub fn restore(&mut self, lines: impl IntoIterator<Item = HistoryLine>) {
        let (now, before) = (self.at(), self.samples.back().map(|last| last.decision.clone()).unwrap_or_default());
        for line in lines {
            if let Some(at) = HistoryRange::ALL.iter().position(|range| range.step() == line.step) {
                self.series[at].restore(line, now, &before);
            }
        }
    }

    /// The lines of the rules with the most traffic, to be saved.
    pub fn saved_rules(&self) -> SavedRules {
        self.rules.saved()
    }

    /// Takes the lines of rules of an earlier run of this server, before the first sample.
    pub fn restore_rules(&mut self, saved: SavedRules) {
        self.rules.restore(saved, self.at());
    }

    /// The time of the last sample.
    pub fn at(&self) -> Timestamp {
        self.samples.back().map(|sample| sample.at).unwrap_or_default()
    }

    /// All decisions up to the last sample, by outcome.
    pub fn totals(&self) -> [u64; RULINGS] {
        self.samples.back().map(|sample| sample.totals).unwrap_or_default()
    }

    /// Decisions per second over the last ten seconds, by outcome.
    pub fn rates(&self) -> [f64; RULINGS] {
        self.window(RATE_WINDOW).map(|(first, last, took)| rates(&first.totals, &last.totals, took)).unwrap_or_default()
    }

    /// Decision latency of the last minute.
    pub fn decision_latency(&self) -> Option<Quantiles> {
        let (first, last, _) = self.window(LATENCY_WINDOW)?;
        Quantiles::from_snapshot(&last.decision.since(&first.decision))
    }

    /// Store latency of the last minute.
    pub fn store_latency(&self) -> Option<Quantiles> {
        let (first, last, _) = self.window(LATENCY_WINDOW)?;
        Quantiles::from_snapshot(&last.store.since(&first.store))
    }

    /// The points of a range.
    pub fn line(&self, range: HistoryRange) -> HistoryLine {
        self.series[range as usize].line()
    }

    /// The share of requests that met no rule, over the last minute; `None` without requests.
    pub fn unmatched_share(&self) -> Option<f64> {
        let (first, last, _) = self.window(LATENCY_WINDOW)?;
        let sum = |totals: &[u64; RULINGS]| totals.iter().sum::<u64>();
        let decisions = sum(&last.totals).saturating_sub(sum(&first.totals));
        let unmatched = last.unmatched.saturating_sub(first.unmatched);
        (decisions > 0).then(|| unmatched.min(decisions) as f64 / decisions as f64)
    }

    /// The newest second and its beginning; `None` before the first sample.
    pub fn second(&self) -> Option<(Timestamp, HistoryPoint)> {
        self.series[HistoryRange::TenMinutes as usize].newest()
    }

    /// The activity of a rule; all zeros if it is unknown.
    pub fn rule(&self, domain: &str, rule: &str) -> Activity {
        self.rules.activity(domain, rule)
    }

    /// The sparkline of a rule.
    pub fn sparkline(&self, domain: &str, rule: &str) -> Sparkline {
        self.rules.sparkline(domain, rule)
    }

    /// A rule over time; `None` if too many rules have had traffic to retain the range for each.
    pub fn rule_line(&self, domain: &str, rule: &str, range: HistoryRange) -> Option<RuleLine> {
        self.rules.line(domain, rule, range)
    }

    /// The rules that refused most in the last minute, or would have, the first ones.
    pub fn refusing(&self, max: usize) -> Vec<RefusingRule> {
        self.rules.refusing(max)
    }

    /// The activity of each tier of a domain, summed over its rules with limits by tier. Unordered.
    pub fn tiers(&self, domain: &str) -> Vec<TierActivity> {
        self.rules.tiers(domain)
    }

    /// The first and the last sample of about the last `window`, and the time between them.
    fn window(&self, window: Span) -> Option<(&CounterSample, &CounterSample, Span)> {
        let last = self.samples.back()?;
        let (mut first, mut elapsed) = (last, Span::ZERO);
        for (sample, before) in
            self.samples.iter().zip(self.samples.iter().skip(1)).rev().map(|(one, next)| (next, one))
        {
            // Half a sample of tolerance: samples arrive a little early or late.
            if elapsed.as_micros() + sample.took.as_micros() / 2 > window.as_micros() {
                break;
            }
            (first, elapsed) = (before, Span::from_micros(elapsed.as_micros() + sample.took.as_micros()));
        }
        (elapsed > Span::ZERO).then_some((first, last, elapsed))
    }
}

impl Quantiles {
    fn from_snapshot(latency: &LatencySnapshot) -> Option<Quantiles> {
        let (p50, p99, p999) = (latency.quantile(5_000)?, latency.quantile(9_900)?, latency.quantile(9_990)?);
        Some(Quantiles { p50, p99, p999, count: latency.count() })
    }
}

/// The time from one sample to the next. A clock that stood still or went back counts as one step.
fn elapsed_since(before: Timestamp, now: Timestamp) -> Span {
    match now.since(before) {
        Span::ZERO => STEP,
        span => span.min(MAX_GAP),
    }
}

/// Rates between two samples. Totals may shrink when rules are removed.
fn rates<const N: usize>(before: &[u64; N], after: &[u64; N], took: Span) -> [f64; N] {
    std::array::from_fn(|at| per_second(after[at].saturating_sub(before[at]), took))
}

fn per_second(count: u64, took: Span) -> f64 {
    match took.as_micros() {
        0 => 0.0,
        micros => count as f64 * 1e6 / micros as f64,
    }
}

/// The nearest number of steps, at least one.
fn rounded_steps(took: Span, step: Span) -> usize {
    let (took, step) = (took.as_micros(), step.as_micros().max(1));
    usize::try_from((took + step / 2) / step).unwrap_or(usize::MAX).max(1)
}

fn push<T>(list: &mut VecDeque<T>, new: T, max: usize) {
    if list.len() >= max {
        list.pop_front();
    }
    list.push_back(new);
}
