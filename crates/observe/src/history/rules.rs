//! What each rule and tier came to lately.

use std::collections::{HashMap, VecDeque};
use std::mem;

use tollgate::Span;

use super::{RATES_OVER, STEP, Stand, per_second, push, rounded};
use crate::tally::{Count, Counts, Peak, RowName};

/// By domain, then by rule. There are no more than the tally has rows.
#[derive(Debug, Default)]
pub(super) struct Rules {
    domains: HashMap<Box<str>, HashMap<Box<str>, Rule>>,
    /// How many looks there were.
    looks: u64,
    /// How long each of the last looks covers.
    took: VecDeque<Span>,
    /// What the step that is not over yet covers.
    gathered: Span,
    /// How many points there are.
    points: usize,
}

/// What became of the decisions that met a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met<T> {
    /// It had room, or only told that it had none.
    pub allow: T,
    /// It refused.
    pub deny: T,
    /// It would have refused, and was only tried.
    pub would_deny: T,
}

/// What a rule came to, or one tier of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// A second, of the last ten.
    pub rates: Met<f64>,
    /// Since the start.
    pub totals: Met<u64>,
    /// How full its fullest counter was lately; `None` if nothing was asked of it.
    pub peak: Option<Peak>,
    /// The tiers that it tells apart, with what stands for one; none of a single tier.
    pub tiers: Vec<TierActivity>,
}

/// What a tier came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierActivity {
    /// Its name, or what stands for it.
    pub tier: String,
    /// What it came to.
    pub activity: Activity,
}

/// What a rule came to, step by step: a second each, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparkline {
    /// What had room.
    pub allow: Vec<f64>,
    /// What was refused.
    pub deny: Vec<f64>,
    /// What would have been.
    pub would_deny: Vec<f64>,
}

#[derive(Debug, Default)]
struct Rule {
    tiers: Vec<Tier>,
    /// What is past its oldest point was nothing.
    points: VecDeque<[f32; FATES]>,
    /// Of the step that is not over yet.
    gathered: [u64; FATES],
    /// The look at which it was there.
    seen: u64,
}

#[derive(Debug)]
struct Tier {
    name: Box<str>,
    totals: [u64; FATES],
    /// What the last looks brought, by their numbers.
    recent: [[u32; FATES]; RECENT],
    peak: Option<Peak>,
    seen: u64,
}

/// Allowed, denied, would be denied.
const FATES: usize = 3;
/// Looks that rates are made of.
const RECENT: usize = (RATES_OVER.as_micros() / STEP.as_micros()) as usize;
/// A point of a rule's line.
pub(super) const POINT: Span = Span::from_secs(5);
/// The most of them.
pub(super) const MOST_POINTS: usize = 60;

impl Sparkline {
    /// How long a step is.
    pub const STEP: Span = POINT;
}

impl Rules {
    pub(super) fn sample(&mut self, rows: &[Stand], took: Span) {
        self.looks += 1;
        push(&mut self.took, took, RECENT);
        let (looks, place) = (self.looks, self.looks as usize % RECENT);
        for row in rows {
            self.rule(row.row.name()).sample(row, looks, place);
        }
        self.forget();
        self.gathered = Span::from_micros(self.gathered.as_micros() + took.as_micros());
        // Half a look early is in time.
        if self.gathered.as_micros() + STEP.as_micros() / 2 >= POINT.as_micros() {
            let took = mem::take(&mut self.gathered);
            let steps = rounded(took, POINT).min(MOST_POINTS);
            self.points = (self.points + steps).min(MOST_POINTS);
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
        let known = points.map_or(0, VecDeque::len);
        let line = |fate: usize| {
            let nothing = std::iter::repeat_n(0.0, self.points.saturating_sub(known));
            nothing.chain(points.into_iter().flatten().map(|point| f64::from(point[fate]))).collect()
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

    fn find(&self, domain: &str, rule: &str) -> Option<&Rule> {
        self.domains.get(domain)?.get(rule)
    }

    fn rule(&mut self, name: &RowName) -> &mut Rule {
        let rules = self.domains.entry(name.domain().into()).or_default();
        rules.entry(name.rule().into()).or_default()
    }

    /// Forgets rows that are gone.
    fn forget(&mut self) {
        let looks = self.looks;
        for rules in self.domains.values_mut() {
            rules.retain(|_, rule| {
                rule.tiers.retain(|tier| tier.seen == looks);
                rule.seen == looks
            });
        }
        self.domains.retain(|_, rules| !rules.is_empty());
    }

    fn tier(&self, tier: &Tier) -> TierActivity {
        let elapsed = Span::from_micros(self.took.iter().map(|took| took.as_micros()).sum());
        let mut recent = [0u64; FATES];
        for look in &tier.recent {
            recent.iter_mut().zip(look).for_each(|(sum, count)| *sum += u64::from(*count));
        }
        let [allow, deny, would_deny] = recent.map(|count| per_second(count, elapsed));
        let rates = Met { allow, deny, would_deny };
        let [allow, deny, would_deny] = tier.totals;
        let totals = Met { allow, deny, would_deny };
        let activity = Activity { rates, totals, peak: tier.peak, tiers: Vec::new() };
        TierActivity { tier: tier.name.as_ref().to_owned(), activity }
    }
}

impl Rule {
    fn sample(&mut self, row: &Stand, look: u64, place: usize) {
        self.seen = look;
        let name = row.row.name().tier();
        let at = self.tiers.iter().position(|tier| &*tier.name == name).unwrap_or_else(|| {
            let (totals, recent) = ([0; FATES], [[0; FATES]; RECENT]);
            self.tiers.push(Tier { name: name.into(), totals, recent, peak: None, seen: look });
            self.tiers.len() - 1
        });
        let tier = &mut self.tiers[at];
        (tier.peak, tier.seen) = (row.peak, look);
        let before = mem::replace(&mut tier.totals, fates(&row.counts));
        for (fate, (total, before)) in tier.totals.iter().zip(before).enumerate() {
            let new = total.saturating_sub(before);
            tier.recent[place][fate] = u32::try_from(new).unwrap_or(u32::MAX);
            self.gathered[fate] += new;
        }
    }

    /// A step is over. Of a rule that nobody meets no points are kept.
    fn point(&mut self, took: Span, steps: usize) {
        let gathered = mem::take(&mut self.gathered);
        if self.points.is_empty() && gathered == [0; FATES] {
            return;
        }
        let point = gathered.map(|count| per_second(count, took) as f32);
        (0..steps).for_each(|_| push(&mut self.points, point, MOST_POINTS));
        if self.points.iter().all(|point| *point == [0.0; FATES]) {
            self.points = VecDeque::new();
        }
    }
}

impl Activity {
    fn add(&mut self, other: &Activity) {
        let add = |to: &mut Met<f64>, more: Met<f64>| {
            (to.allow, to.deny) = (to.allow + more.allow, to.deny + more.deny);
            to.would_deny += more.would_deny;
        };
        add(&mut self.rates, other.rates);
        self.totals.allow += other.totals.allow;
        self.totals.deny += other.totals.deny;
        self.totals.would_deny += other.totals.would_deny;
        self.peak = match (self.peak, other.peak) {
            (Some(one), Some(other)) => {
                Some(Peak { used_of_1_000: one.used_of_1_000.max(other.used_of_1_000), left: one.left.min(other.left) })
            }
            (one, other) => one.or(other),
        };
    }

    /// How much of the fullest counter was used, of 1; 0 without traffic.
    pub fn utilisation(&self) -> f64 {
        self.peak.map_or(0.0, |peak| peak.used_of_1_000 as f64 / 1_000.0)
    }
}

/// What became of the decisions that met a limit.
fn fates(counts: &Counts) -> [u64; FATES] {
    let (deny, would_deny) = (counts[Count::Refused], counts[Count::WouldRefuse]);
    [counts[Count::Met].saturating_sub(deny + would_deny), deny, would_deny]
}
