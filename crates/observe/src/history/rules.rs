//! Recent activity of each rule and tier.

use std::collections::{HashMap, VecDeque};
use std::mem;

use tollgate::Span;

use super::{RATE_WINDOW, RowSample, STEP, per_second, push, rounded_steps};
use crate::tally::{CountKind, Peak, RowCounts, RowName};

/// Histories by domain, then by rule. There are no more than the tally has rows.
#[derive(Debug, Default)]
pub(super) struct RuleHistories {
    domains: HashMap<Box<str>, HashMap<Box<str>, RuleHistory>>,
    /// The number of samples so far.
    samples: u64,
    /// The time that each of the last samples covers.
    took: VecDeque<Span>,
    /// The time that the unfinished step covers so far.
    gathered: Span,
    /// The number of points so far.
    points: usize,
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

#[derive(Debug, Default)]
struct RuleHistory {
    tiers: Vec<TierHistory>,
    /// Before the oldest point all rates were zero.
    points: VecDeque<[f32; RESULTS]>,
    /// Counts of the unfinished step.
    gathered: [u64; RESULTS],
    /// The last sample that had this rule.
    last_sample: u64,
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
/// The interval of a sparkline point.
pub(super) const POINT: Span = Span::from_secs(5);
/// The number of sparkline points.
pub(super) const MAX_POINTS: usize = 60;

impl Sparkline {
    /// The interval of a point.
    pub const STEP: Span = POINT;
}

impl RuleHistories {
    pub(super) fn sample(&mut self, rows: &[RowSample], took: Span) {
        self.samples += 1;
        push(&mut self.took, took, RATE_SAMPLES);
        let (samples, place) = (self.samples, self.samples as usize % RATE_SAMPLES);
        for row in rows {
            self.rule(row.row.name()).sample(row, samples, place);
        }
        self.drop_removed();
        self.gathered = Span::from_micros(self.gathered.as_micros() + took.as_micros());
        // Half a sample of tolerance.
        if self.gathered.as_micros() + STEP.as_micros() / 2 >= POINT.as_micros() {
            let took = mem::take(&mut self.gathered);
            let steps = rounded_steps(took, POINT).min(MAX_POINTS);
            self.points = (self.points + steps).min(MAX_POINTS);
            self.domains.values_mut().flat_map(HashMap::values_mut).for_each(|rule| rule.point(took, steps));
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
        let points = self.find(domain, rule).map(|rule| &rule.points);
        let len = points.map_or(0, VecDeque::len);
        let line = |result: usize| {
            let nothing = std::iter::repeat_n(0.0, self.points.saturating_sub(len));
            nothing.chain(points.into_iter().flatten().map(|point| f64::from(point[result]))).collect()
        };
        Sparkline { allow: line(0), deny: line(1), would_deny: line(2) }
    }

    pub(super) fn tiers(&self, domain: &str) -> Vec<TierActivity> {
        let mut tiers: HashMap<&str, Activity> = HashMap::new();
        let rules = self.domains.get(domain).into_iter().flat_map(HashMap::values);
        for tier in rules.flat_map(|rule| &rule.tiers) {
            tiers.entry(&tier.name).or_default().add(&self.tier(tier).activity);
        }
        tiers.into_iter().map(|(tier, activity)| TierActivity { tier: tier.to_owned(), activity }).collect()
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
        for rules in self.domains.values_mut() {
            rules.retain(|_, rule| {
                rule.tiers.retain(|tier| tier.last_sample == samples);
                rule.last_sample == samples
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
        self.last_sample = sample;
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
            self.gathered[result] += new;
        }
    }

    /// Completes a step. Rules without traffic store no points.
    fn point(&mut self, took: Span, steps: usize) {
        let gathered = mem::take(&mut self.gathered);
        if self.points.is_empty() && gathered == [0; RESULTS] {
            return;
        }
        let point = gathered.map(|count| per_second(count, took) as f32);
        (0..steps).for_each(|_| push(&mut self.points, point, MAX_POINTS));
        if self.points.iter().all(|point| *point == [0.0; RESULTS]) {
            self.points = VecDeque::new();
        }
    }
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
