//! What decisions came to lately: second by second for all of them, and for each rule.
//!
//! Whoever keeps a history looks at the counts once a second ([`History::sample`]); in between nothing is read, and decisions never
//! meet it. Time is an argument.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate::{Span, Timestamp};

use crate::latency::Times;
use crate::observer::Observer;
use crate::ruling::Ruling;
use crate::tally::{Count, Counts, Peak, Row};
use rules::Rules;

pub use rules::{Activity, Met, Sparkline, TierActivity};

/// What decisions came to in the last minutes.
#[derive(Debug)]
pub struct History {
    /// The oldest first.
    seconds: VecDeque<Second>,
    /// What was counted at each of the last looks, the oldest first. There is always one.
    looks: VecDeque<Look>,
    rules: Rules,
}

/// What a second came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Decisions a second, by ruling.
    pub rates: [f64; RULINGS],
    /// How long decisions took; `None` where none was timed.
    pub took: Option<Quantiles>,
}

/// How long things took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// How many there were.
    pub count: u64,
}

/// How much of each kind there is.
const RULINGS: usize = Ruling::ALL.len();

/// What was counted at a moment.
#[derive(Debug)]
struct Look {
    at: Timestamp,
    /// Since the look before.
    took: Span,
    totals: [u64; RULINGS],
    decision: Times,
    store: Times,
}

/// A row as it stands. It is not held for longer than a look takes: rows of rules that are gone must go.
#[derive(Debug)]
struct Stand {
    row: Arc<Row>,
    counts: Counts,
    peak: Option<Peak>,
}

/// A point of a history.
pub const STEP: Span = Span::from_secs(1);
/// The most of them.
pub const MOST_SECONDS: usize = 300;
/// Rates are those of the last so long.
pub const RATES_OVER: Span = Span::from_secs(10);
/// And times those of the last so long.
pub const TIMES_OVER: Span = Span::from_secs(60);
/// Looks that are kept: those of a minute, and the one before.
const MOST_LOOKS: usize = 61;
/// A clock that is set forward by hours is not taken at its word.
const LONGEST: Span = Span::from_secs(60);

impl History {
    /// One that begins at this moment, when nothing had been counted.
    pub fn new(begin: Timestamp) -> History {
        let (decision, store) = (Times::default(), Times::default());
        let first = Look { at: begin, took: Span::ZERO, totals: [0; RULINGS], decision, store };
        History { seconds: VecDeque::new(), looks: VecDeque::from([first]), rules: Rules::default() }
    }

    /// Looks at what is counted.
    pub fn sample(&mut self, observer: &Observer, now: Timestamp) {
        let Some(last) = self.looks.back() else { return };
        let took = passed(last.at, now);
        let rows = observer.tally().rows().into_iter();
        let rows: Vec<_> = rows.map(|row| Stand { counts: row.counts(), peak: row.peak(now), row }).collect();
        let mut totals = [0; RULINGS];
        for Stand { counts, .. } in &rows {
            totals.iter_mut().zip(Ruling::ALL).for_each(|(total, ruling)| *total += counts[Count::Ruled(ruling)]);
        }
        let look = Look {
            at: now,
            took,
            totals,
            decision: observer.decision_times().times(),
            store: observer.store_times().times(),
        };
        let since = look.decision.since(&last.decision);
        let second = Second { rates: rates(&last.totals, &totals, took), took: Quantiles::of(&since) };
        // One who looked late saw what several seconds came to.
        for _ in 0..rounded(took, STEP).min(MOST_SECONDS) {
            push(&mut self.seconds, second, MOST_SECONDS);
        }
        push(&mut self.looks, look, MOST_LOOKS);
        self.rules.sample(&rows, took);
    }

    /// When was looked last.
    pub fn at(&self) -> Timestamp {
        self.looks.back().map(|look| look.at).unwrap_or_default()
    }

    /// All decisions up to then, by ruling.
    pub fn totals(&self) -> [u64; RULINGS] {
        self.looks.back().map(|look| look.totals).unwrap_or_default()
    }

    /// Decisions a second of the last ten, by ruling.
    pub fn rates(&self) -> [f64; RULINGS] {
        self.window(RATES_OVER).map(|(first, last, took)| rates(&first.totals, &last.totals, took)).unwrap_or_default()
    }

    /// How long decisions took in the last minute.
    pub fn decision_times(&self) -> Option<Quantiles> {
        let (first, last, _) = self.window(TIMES_OVER)?;
        Quantiles::of(&last.decision.since(&first.decision))
    }

    /// How long the store took in the last minute.
    pub fn store_times(&self) -> Option<Quantiles> {
        let (first, last, _) = self.window(TIMES_OVER)?;
        Quantiles::of(&last.store.since(&first.store))
    }

    /// Every second that is known, the oldest first. The last one ended when was looked last.
    pub fn seconds(&self) -> impl ExactSizeIterator<Item = &Second> {
        self.seconds.iter()
    }

    /// What a rule came to; nothing, where nothing is known of it.
    pub fn rule(&self, domain: &str, rule: &str) -> Activity {
        self.rules.activity(domain, rule)
    }

    /// What a rule came to lately, step by step.
    pub fn sparkline(&self, domain: &str, rule: &str) -> Sparkline {
        self.rules.sparkline(domain, rule)
    }

    /// What the tiers of a domain came to, of all rules together that tell tiers apart. In no order.
    pub fn tiers(&self, domain: &str) -> Vec<TierActivity> {
        self.rules.tiers(domain)
    }

    /// The first and the last look of about the last so long, and the time between them.
    fn window(&self, window: Span) -> Option<(&Look, &Look, Span)> {
        let last = self.looks.back()?;
        let (mut first, mut elapsed) = (last, Span::ZERO);
        for (look, before) in self.looks.iter().zip(self.looks.iter().skip(1)).rev().map(|(one, next)| (next, one)) {
            // The half of it, so that looks that come a little early or late are as many as there should be.
            if elapsed.as_micros() + look.took.as_micros() / 2 > window.as_micros() {
                break;
            }
            (first, elapsed) = (before, Span::from_micros(elapsed.as_micros() + look.took.as_micros()));
        }
        (elapsed > Span::ZERO).then_some((first, last, elapsed))
    }
}

impl Quantiles {
    fn of(times: &Times) -> Option<Quantiles> {
        let (p50, p99, p999) = (times.quantile(5_000)?, times.quantile(9_900)?, times.quantile(9_990)?);
        Some(Quantiles { p50, p99, p999, count: times.count() })
    }
}

/// The time from one look to the next. A clock that stood still or was set back tells nothing: then it is as long as it should be.
fn passed(before: Timestamp, now: Timestamp) -> Span {
    match now.since(before) {
        Span::ZERO => STEP,
        span => span.min(LONGEST),
    }
}

/// What came between, a second. Rules that are gone may have taken their counts with them.
fn rates<const N: usize>(before: &[u64; N], after: &[u64; N], took: Span) -> [f64; N] {
    std::array::from_fn(|at| per_second(after[at].saturating_sub(before[at]), took))
}

fn per_second(count: u64, took: Span) -> f64 {
    match took.as_micros() {
        0 => 0.0,
        micros => count as f64 * 1e6 / micros as f64,
    }
}

/// How many steps a time comes nearest to; one at least.
fn rounded(took: Span, step: Span) -> usize {
    let (took, step) = (took.as_micros(), step.as_micros().max(1));
    usize::try_from((took + step / 2) / step).unwrap_or(usize::MAX).max(1)
}

fn push<T>(list: &mut VecDeque<T>, new: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(new);
}
