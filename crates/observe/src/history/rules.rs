//! Recent activity of each rule and tier.

use std::collections::{HashMap, VecDeque};
use std::mem;

use tollgate::{Span, Timestamp};

use super::buckets::{Advance, Buckets, Line};
use super::{HistoryRange, RATE_WINDOW, RowSample, STEP, per_second, push};
use crate::tally::{CountKind, Peak, RowCounts, RowName};

/// Histories by domain, then by rule. There are no more than the tally has rows, and those of an earlier run.
#[derive(Debug)]
pub(super) struct RuleHistories {
    domains: HashMap<Box<str>, HashMap<Box<str>, RuleHistory>>,
    /// The number of samples so far.
    samples: u64,
    /// The time that each of the last samples covers.
    took: VecDeque<Span>,
    /// The time axis of each range.
    axes: [Buckets; RANGES],
    /// Rules with lines of all ranges.
    long: usize,
}

/// Decisions by the result of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitResults<T> {
    /// Within the limit, or beyond a soft one.
    pub allow: T,
    /// Refused.
    pub deny: T,
    /// Would have been refused: the limit is in shadow mode.
    pub would_deny: T,
}

/// The activity of a rule, or of one of its tiers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Decisions per second over the last ten seconds.
    pub rates: LimitResults<f64>,
    /// Decisions since the start.
    pub totals: LimitResults<u64>,
    /// The peak utilisation of its counters; `None` without requests.
    pub peak: Option<Peak>,
    /// The activity of its tiers, including placeholders; empty for a single tier.
    pub tiers: Vec<TierActivity>,
}

/// The activity of a tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierActivity {
    /// Its name, or a placeholder.
    pub tier: String,
    /// Its activity.
    pub activity: Activity,
}

/// The recent rates of a rule, per step, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparkline {
    /// Allowed decisions per second.
    pub allow: Vec<f64>,
    /// Refused decisions per second.
    pub deny: Vec<f64>,
    /// Decisions per second that would have been refused.
    pub would_deny: Vec<f64>,
}

/// A rule over time.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleLine {
    /// The beginning of the first point.
    pub from: Timestamp,
    /// The time of each point.
    pub step: Span,
    /// Decisions per second, oldest first; `None` in a gap.
    pub points: Vec<Option<LimitResults<f64>>>,
}

/// The lines of rules, for a server that starts again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedRules {
    /// The time axis of each range, the finest first.
    pub axes: Vec<SavedAxis>,
    /// The rules, those with the most traffic first.
    pub rules: Vec<SavedRule>,
}

/// The time axis of the lines of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedAxis {
    /// The beginning of the newest point.
    pub newest: Timestamp,
    /// The time of each point.
    pub step: Span,
    /// The number of points since the first sample.
    pub points: usize,
}

/// The lines of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRule {
    /// Its domain.
    pub domain: String,
    /// Its name.
    pub rule: String,
    /// For each axis, the last points, oldest first: allowed, denied and would-be-denied decisions per second; `None` in a gap.
    pub lines: Vec<Vec<Option<[f32; 3]>>>,
}

/// A rule that refuses, or would.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusingRule {
    /// Its domain.
    pub domain: String,
    /// Its name.
    pub rule: String,
    /// Decisions per second in the last minute.
    pub rates: LimitResults<f64>,
}

#[derive(Debug, Default)]
struct RuleHistory {
    tiers: Vec<TierHistory>,
    /// Before the oldest point all rates were zero.
    lines: [RecentLine; RANGES],
    /// Counts since the last sample.
    counted: [u64; RESULTS],
    /// Whether it has lines of all ranges, or only of the first.
    is_long: bool,
    /// Whether its lines are those of an earlier run, and it has had no row since.
    is_restored: bool,
    /// The last sample that had this rule.
    last_sample: u64,
}

/// A line and the counts of its newest bucket.
#[derive(Debug, Default)]
struct RecentLine {
    line: Line<[f32; RESULTS]>,
    counts: [f64; RESULTS],
}

#[derive(Debug)]
struct TierHistory {
    name: Box<str>,
    totals: [u64; RESULTS],
    /// The counts of the last samples, by their numbers.
    recent: [[u32; RESULTS]; RATE_SAMPLES],
    peak: Option<Peak>,
    last_sample: u64,
}

/// Allowed, denied, would be denied.
const RESULTS: usize = 3;
/// Samples that a rate covers.
const RATE_SAMPLES: usize = (RATE_WINDOW.as_micros() / STEP.as_micros()) as usize;
const RANGES: usize = HistoryRange::ALL.len();
/// The interval and the number of points of each range.
const AXES: [(Span, usize); RANGES] =
    [(Span::from_secs(5), 120), (Span::from_secs(60), 120), (Span::from_secs(600), 144)];
/// The number of sparkline points: five minutes.
pub(super) const MAX_POINTS: usize = 60;
/// Points of the last minute.
const MINUTE_POINTS: usize = 12;
/// Rules that have lines of all ranges. Others have ten minutes.
pub(super) const MAX_LONG_LINES: usize = 1_000;
/// Rules whose lines are saved for the next run: those with the most traffic.
pub(super) const MAX_SAVED_RULES: usize = 200;

impl Sparkline {
    /// The interval of a point.
    pub const STEP: Span = AXES[0].0;
}

impl Default for RuleHistories {
    fn default() -> RuleHistories {
        let axes = AXES.map(|(step, max)| Buckets::new(step, max));
        RuleHistories { domains: HashMap::new(), samples: 0, took: VecDeque::new(), axes, long: 0 }
    }
}

impl RuleHistories {
    pub(super) fn sample(&mut self, rows: &[RowSample], now: Timestamp, took: Span) {
        self.samples += 1;
        push(&mut self.took, took, RATE_SAMPLES);
        let (samples, place) = (self.samples, self.samples as usize % RATE_SAMPLES);
        for row in rows {
            self.rule(row.row.name()).sample(row, samples, place);
        }
        self.drop_removed();
        let advances: [Advance; RANGES] = std::array::from_fn(|at| self.axes[at].advance(now, took));
        for rule in self.domains.values_mut().flat_map(HashMap::values_mut) {
            rule.apply(&self.axes, &advances, took, &mut self.long);
        }
    }

    pub(super) fn activity(&self, domain: &str, rule: &str) -> Activity {
        let Some(rule) = self.find(domain, rule) else { return Activity::default() };
        let tiers: Vec<_> = rule.tiers.iter().map(|tier| self.tier(tier)).collect();
        let mut all = Activity::default();
        tiers.iter().for_each(|tier| all.add(&tier.activity));
        Activity { tiers, ..all }
    }

    pub(super) fn sparkline(&self, domain: &str, rule: &str) -> Sparkline {
        let line = self.points(self.find(domain, rule), HistoryRange::TenMinutes);
        let recent = || line.iter().skip(line.len().saturating_sub(MAX_POINTS)).map(|point| point.unwrap_or_default());
        Sparkline {
            allow: recent().map(|point| point.allow).collect(),
            deny: recent().map(|point| point.deny).collect(),
            would_deny: recent().map(|point| point.would_deny).collect(),
        }
    }

    pub(super) fn line(&self, domain: &str, rule: &str, range: HistoryRange) -> Option<RuleLine> {
        let rule = self.find(domain, rule);
        let has_traffic = rule.is_some_and(|rule| !rule.lines[0].line.0.is_empty() || rule.is_long);
        if range != HistoryRange::TenMinutes && has_traffic && !rule.is_some_and(|rule| rule.is_long) {
            return None;
        }
        let (points, axis) = (self.points(rule, range), &self.axes[range as usize]);
        Some(RuleLine { from: axis.from(points.len()), step: axis.step, points })
    }

    pub(super) fn refusing(&self, max: usize) -> Vec<RefusingRule> {
        let rules = self.domains.iter().flat_map(|(domain, rules)| rules.iter().map(move |rule| (domain, rule)));
        let mut refusing: Vec<RefusingRule> = rules
            .filter_map(|(domain, (name, rule))| {
                let rates = rule.lines[0].last_minute();
                let refuses = rates.deny > 0.0 || rates.would_deny > 0.0;
                refuses.then(|| RefusingRule { domain: domain.to_string(), rule: name.to_string(), rates })
            })
            .collect();
        refusing.sort_by(|one, other| {
            let rank = |rule: &RefusingRule| (rule.rates.deny, rule.rates.would_deny);
            let [(deny, would), (other_deny, other_would)] = [rank(one), rank(other)];
            let by_rate = other_deny.total_cmp(&deny).then(other_would.total_cmp(&would));
            by_rate.then_with(|| (&one.domain, &one.rule).cmp(&(&other.domain, &other.rule)))
        });
        refusing.truncate(max);
        refusing
    }

    /// The points of a rule since the first sample: before its own first point all rates were zero.
    fn points(&self, rule: Option<&RuleHistory>, range: HistoryRange) -> Vec<Option<LimitResults<f64>>> {
        let line = rule.map(|rule| &rule.lines[range as usize].line.0);
        let len = line.map_or(0, VecDeque::len);
        let nothing =
            std::iter::repeat_n(Some(LimitResults::default()), self.axes[range as usize].len.saturating_sub(len));
        let known = line.into_iter().flatten().map(|point| point.map(|point| to_results(point.map(f64::from))));
        nothing.chain(known).collect()
    }

    pub(super) fn tiers(&self, domain: &str) -> Vec<TierActivity> {
        let mut tiers: HashMap<&str, Activity> = HashMap::new();
        let rules = self.domains.get(domain).into_iter().flat_map(HashMap::values);
        for tier in rules.flat_map(|rule| &rule.tiers) {
            tiers.entry(&tier.name).or_default().add(&self.tier(tier).activity);
        }
        tiers.into_iter().map(|(tier, activity)| TierActivity { tier: tier.to_owned(), activity }).collect()
    }

    pub(super) fn saved(&self) -> SavedRules {
        let axes = self.axes.iter().map(|axis| SavedAxis { newest: axis.from(1), step: axis.step, points: axis.len });
        let rules = self.domains.iter().flat_map(|(domain, rules)| rules.iter().map(move |rule| (domain, rule)));
        let mut rules: Vec<_> = rules.filter(|(_, (_, rule))| rule.is_long).collect();
        let traffic = |rule: &RuleHistory| {
            let points = rule.lines.last().into_iter().flat_map(|line| line.line.0.iter().flatten());
            points.flatten().map(|rate| f64::from(*rate)).sum::<f64>()
        };
        rules.sort_by_cached_key(|(domain, (name, rule))| {
            // Rates are never negative, so their bits have their order.
            (std::cmp::Reverse(traffic(rule).to_bits()), (*domain).clone(), (*name).clone())
        });
        rules.truncate(MAX_SAVED_RULES);
        let rules = rules.into_iter().map(|(domain, (name, rule))| SavedRule {
            domain: domain.to_string(),
            rule: name.to_string(),
            lines: rule.lines.iter().map(|line| line.line.0.iter().copied().collect()).collect(),
        });
        SavedRules { axes: axes.collect(), rules: rules.collect() }
    }

    /// Takes the lines of an earlier run, as far as they are before `now`. Nothing has been sampled yet.
    pub(super) fn restore(&mut self, saved: SavedRules, now: Timestamp) {
        let is_restored: [bool; RANGES] = std::array::from_fn(|at| {
            let axis = &mut self.axes[at];
            let known = saved.axes.get(at).filter(|known| known.step == axis.step && axis.newest.is_none());
            known.is_some_and(|known| axis.restore(known.newest, known.points, now))
        });
        for SavedRule { domain, rule, lines } in saved.rules.into_iter().take(MAX_SAVED_RULES) {
            let mut history = RuleHistory { is_restored: true, is_long: true, ..RuleHistory::default() };
            for (at, mut points) in lines.into_iter().enumerate().take(RANGES).filter(|(at, _)| is_restored[*at]) {
                let axis = &self.axes[at];
                points.drain(..points.len().saturating_sub(axis.len));
                let seconds = axis.took.as_micros() as f64 / 1e6;
                let newest = points.last().copied().flatten().unwrap_or_default();
                let counts = newest.map(|rate| f64::from(rate) * seconds);
                history.lines[at] = RecentLine { line: Line(points.into()), counts };
            }
            if history.lines.iter().any(|line| !line.line.0.is_empty()) {
                self.domains.entry(domain.into()).or_default().insert(rule.into(), history);
            }
        }
        self.long = self.domains.values().map(HashMap::len).sum();
    }

    fn find(&self, domain: &str, rule: &str) -> Option<&RuleHistory> {
        self.domains.get(domain)?.get(rule)
    }

    fn rule(&mut self, name: &RowName) -> &mut RuleHistory {
        let rules = self.domains.entry(name.domain().into()).or_default();
        rules.entry(name.rule().into()).or_default()
    }

    /// Drops the histories of removed rows.
    fn drop_removed(&mut self) {
        let samples = self.samples;
        self.long = 0;
        for rules in self.domains.values_mut() {
            rules.retain(|_, rule| {
                rule.tiers.retain(|tier| tier.last_sample == samples);
                let is_present = rule.last_sample == samples || (rule.is_restored && rule.is_long);
                self.long += usize::from(is_present && rule.is_long);
                is_present
            });
        }
        self.domains.retain(|_, rules| !rules.is_empty());
    }

    fn tier(&self, tier: &TierHistory) -> TierActivity {
        let elapsed = Span::from_micros(self.took.iter().map(|took| took.as_micros()).sum());
        let mut recent = [0u64; RESULTS];
        for sample in &tier.recent {
            recent.iter_mut().zip(sample).for_each(|(sum, count)| *sum += u64::from(*count));
        }
        let [allow, deny, would_deny] = recent.map(|count| per_second(count, elapsed));
        let rates = LimitResults { allow, deny, would_deny };
        let [allow, deny, would_deny] = tier.totals;
        let totals = LimitResults { allow, deny, would_deny };
        let activity = Activity { rates, totals, peak: tier.peak, tiers: Vec::new() };
        TierActivity { tier: tier.name.as_ref().to_owned(), activity }
    }
}

impl RuleHistory {
    fn sample(&mut self, row: &RowSample, sample: u64, place: usize) {
        (self.last_sample, self.is_restored) = (sample, false);
        let name = row.row.name().tier();
        let at = self.tiers.iter().position(|tier| &*tier.name == name).unwrap_or_else(|| {
            let (totals, recent) = ([0; RESULTS], [[0; RESULTS]; RATE_SAMPLES]);
            self.tiers.push(TierHistory { name: name.into(), totals, recent, peak: None, last_sample: sample });
            self.tiers.len() - 1
        });
        let tier = &mut self.tiers[at];
        (tier.peak, tier.last_sample) = (row.peak, sample);
        let before = mem::replace(&mut tier.totals, results(&row.counts));
        for (result, (total, before)) in tier.totals.iter().zip(before).enumerate() {
            let new = total.saturating_sub(before);
            tier.recent[place][result] = u32::try_from(new).unwrap_or(u32::MAX);
            self.counted[result] += new;
        }
    }

    /// Adds the counts since the last sample to its lines. Rules without traffic store no points.
    fn apply(&mut self, axes: &[Buckets; RANGES], advances: &[Advance; RANGES], took: Span, long: &mut usize) {
        let counted = mem::take(&mut self.counted);
        if counted != [0; RESULTS] && !self.is_long && *long < MAX_LONG_LINES {
            (self.is_long, *long) = (true, *long + 1);
        }
        let ranges = if self.is_long { RANGES } else { 1 };
        for ((line, axis), advance) in self.lines.iter_mut().zip(axes).zip(advances).take(ranges) {
            line.apply(axis, *advance, took, counted);
        }
        if self.is_long && self.lines.iter().all(|line| line.line.0.is_empty()) {
            (self.is_long, *long) = (false, *long - 1);
        }
    }
}

impl RecentLine {
    fn apply(&mut self, axis: &Buckets, advance: Advance, took: Span, counted: [u64; RESULTS]) {
        if self.line.0.is_empty() && counted == [0; RESULTS] {
            return;
        }
        // The first traffic of a rule begins its newest bucket.
        let advance = match advance {
            Advance::Same if self.line.0.is_empty() => Advance::Next { dropped: 0, gap: 0, filled: 1 },
            advance => advance,
        };
        match advance {
            Advance::Same => self.counts.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count as f64),
            Advance::Next { .. } => self.counts = counted.map(|count| count as f64 * axis.share(took)),
        }
        let point = self.counts.map(|count| axis.rate(count) as f32);
        self.line.apply(advance, axis.max, point);
        let is_idle = advance != Advance::Same && point == [0.0; RESULTS];
        if is_idle && self.line.0.iter().all(|point| point.is_none_or(|point| point == [0.0; RESULTS])) {
            self.line = Line::default();
        }
    }

    /// Averages over the last minute.
    fn last_minute(&self) -> LimitResults<f64> {
        let recent = self.line.0.iter().rev().take(MINUTE_POINTS).flatten();
        let mut sums = [0.0; RESULTS];
        recent.for_each(|point| sums.iter_mut().zip(point).for_each(|(sum, rate)| *sum += f64::from(*rate)));
        to_results(sums.map(|sum| sum / MINUTE_POINTS as f64))
    }
}

fn to_results([allow, deny, would_deny]: [f64; RESULTS]) -> LimitResults<f64> {
    LimitResults { allow, deny, would_deny }
}

impl Activity {
    fn add(&mut self, other: &Activity) {
        let add = |to: &mut LimitResults<f64>, more: LimitResults<f64>| {
            (to.allow, to.deny) = (to.allow + more.allow, to.deny + more.deny);
            to.would_deny += more.would_deny;
        };
        add(&mut self.rates, other.rates);
        self.totals.allow += other.totals.allow;
        self.totals.deny += other.totals.deny;
        self.totals.would_deny += other.totals.would_deny;
        self.peak = match (self.peak, other.peak) {
            (Some(one), Some(other)) => {
                Some(Peak { used_permille: one.used_permille.max(other.used_permille), left: one.left.min(other.left) })
            }
            (one, other) => one.or(other),
        };
    }

    /// The utilisation of the fullest counter, from 0 to 1; 0 without traffic.
    pub fn utilisation(&self) -> f64 {
        self.peak.map_or(0.0, |peak| peak.used_permille as f64 / 1_000.0)
    }
}

/// Splits the counts of a row by result.
fn results(counts: &RowCounts) -> [u64; RESULTS] {
    let (deny, would_deny) = (counts[CountKind::Refused], counts[CountKind::WouldRefuse]);
    [counts[CountKind::Evaluated].saturating_sub(deny + would_deny), deny, would_deny]
}
