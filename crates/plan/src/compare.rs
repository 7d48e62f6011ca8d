//! Compares two worlds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use smallvec::SmallVec;
use tollgate_core::{Descriptor, Request, Span, Timestamp};

use crate::player::{Played, Player};
use crate::report::{CallerImpact, Impact, PlanExample, PlanReport, RuleImpact, TierImpact};
use crate::timeline::{ReplayEvent, events};
use crate::world::World;
use crate::{TrafficRecord, Uncertainty};

/// The rules in a report.
pub const MAX_RULES: usize = 100;
/// The callers in a report.
pub const MAX_CALLERS: usize = 100;
/// The examples of a rule.
pub const MAX_EXAMPLES: usize = 3;

/// The requests between two reports of progress.
const PROGRESS_INTERVAL: usize = 8_192;

/// Names and values of a descriptor.
type EntryList<'r> = SmallVec<[(&'r str, &'r str); 8]>;
/// A caller: its domain and name.
type CallerName<'r> = (&'r str, &'r str);

/// Replays the requests in both worlds. They are all that there were, or a sample of them. `progress` is called now and then
/// with the share that is done.
pub fn compare<'r>(
    before: &World<'r>,
    after: &World<'r>,
    records: &'r [TrafficRecord],
    is_complete: bool,
    progress: &mut dyn FnMut(f64),
) -> PlanReport {
    // A domain may be in one of them only.
    let caller = |record: &'r TrafficRecord| record.caller(before.rules).or_else(|| record.caller(after.rules));
    let events = events(records, caller);
    let (mut old, mut new) = (Player::new(before, is_complete), Player::new(after, is_complete));
    let mut tally = Tally::default();
    for (number, event) in events.iter().enumerate() {
        if number % PROGRESS_INTERVAL == 0 {
            progress(number as f64 / events.len() as f64);
        }
        let Some(record) = records.get(event.record as usize) else { continue };
        let entries: SmallVec<[EntryList<'_>; 1]> = record
            .descriptors
            .iter()
            .map(|one| one.entries.iter().map(|(name, value)| (&**name, &**value)).collect())
            .collect();
        let descriptors: SmallVec<[Descriptor<'_>; 1]> = entries
            .iter()
            .zip(&record.descriptors)
            .map(|(entries, one)| Descriptor { hits: one.hits, ..Descriptor::new(entries) })
            .collect();
        let request = Request {
            domain: record.domain.as_deref(),
            descriptors: &descriptors,
            cost: record.cost,
            ..Request::default()
        };
        let first = old.play(&request, record, event.at, event.copies);
        let second = new.play(&request, record, event.at, event.copies);
        match (first, second) {
            (Ok(first), Ok(second)) => tally.add(event, record, caller(record), first, second),
            // A request that both can't decide says nothing about the change.
            (Err(_), Err(_)) => {}
            (Err(_), Ok(_)) | (Ok(_), Err(_)) => tally.undecided += requests(event, record),
        }
    }
    progress(1.0);
    let mut uncertain = new.uncertain();
    uncertain.extend(old.uncertain());
    tally.report(before, records, uncertain.into_iter().take(MAX_RULES).collect())
}

/// The requests that an event stands for.
fn requests(event: &ReplayEvent, record: &TrafficRecord) -> u64 {
    u64::from(event.copies) * u64::from(record.callers.max(1))
}

/// The comparison so far.
#[derive(Default)]
struct Tally<'r> {
    all: Impact,
    rules: HashMap<(&'r str, &'r str), RuleTally<'r>>,
    callers: HashMap<CallerName<'r>, CallerTally, foldhash::fast::RandomState>,
    undecided: u64,
}

#[derive(Default)]
struct RuleTally<'r> {
    impact: Impact,
    /// Callers for whom something changes by it.
    changed: HashSet<CallerName<'r>>,
    examples: Vec<PlanExample>,
}

#[derive(Default)]
struct CallerTally {
    impact: Impact,
    /// The callers that it stands for.
    callers: u64,
}

impl<'r> Tally<'r> {
    fn add(
        &mut self,
        event: &ReplayEvent,
        record: &'r TrafficRecord,
        caller: Option<CallerName<'r>>,
        first: Played<'r>,
        second: Played<'r>,
    ) {
        let requests = requests(event, record);
        let (before, after) = (first.is_admitted, second.is_admitted);
        self.all.add(requests, before, after);
        if let Some(caller) = caller {
            let tally = self.callers.entry(caller).or_default();
            // The share of a caller is that of its own requests.
            tally.impact.add(u64::from(event.copies), before, after);
            tally.callers = tally.callers.max(record.callers.max(1).into());
        }
        for (played, is_after) in [(first, false), (second, true)] {
            let Some((domain, rule)) = played.denied_by else { continue };
            let is_same = first
                .denied_by
                .zip(second.denied_by)
                .is_some_and(|((a, one), (b, other))| a.name() == b.name() && one.name() == other.name());
            let tally = self.rules.entry((domain.name(), rule.name())).or_default();
            if !(is_same && is_after) {
                tally.impact.requests += requests;
            }
            if is_after {
                tally.impact.refused_after += requests;
                tally.impact.newly_refused += if before { requests } else { 0 };
            } else {
                tally.impact.refused_before += requests;
                tally.impact.newly_admitted += if after { requests } else { 0 };
            }
            if before != after {
                let is_new = caller.is_none_or(|caller| tally.changed.insert(caller));
                if is_new && tally.examples.len() < MAX_EXAMPLES {
                    tally.examples.push(example(event.at, record, second));
                }
            }
        }
    }

    fn report(self, before: &World<'_>, records: &[TrafficRecord], uncertain: Vec<Uncertainty>) -> PlanReport {
        let times = || records.iter().map(|record| record.at);
        let mut callers: Vec<(CallerImpact, u64)> =
            self.callers.iter().map(|(name, tally)| (caller_impact(before, *name, tally), tally.callers)).collect();
        // In an order that does not depend on hashes.
        callers.sort_by(|(one, _), (other, _)| {
            let order = |one: &CallerImpact| Reverse((one.impact.newly_refused, one.impact.newly_admitted));
            order(one).cmp(&order(other)).then_with(|| (&one.domain, &one.caller).cmp(&(&other.domain, &other.caller)))
        });
        let mut tiers: BTreeMap<(String, String), Impact> = BTreeMap::new();
        for (caller, stands_for) in &callers {
            let tier = tiers.entry((caller.domain.clone(), caller.tier.clone())).or_default();
            tier.add_scaled(caller.impact, *stands_for);
        }
        let changed = || callers.iter().filter(|(caller, _)| caller.impact.is_changed());
        let paid = callers.iter().filter(|(caller, _)| caller.is_paid && caller.impact.newly_refused > 0);
        let worst_paid =
            paid.max_by_key(|(caller, _)| (caller.impact.newly_refused_bps(), caller.impact.newly_refused));
        let mut rules: Vec<RuleImpact> = self.rules.into_iter().map(RuleTally::into_impact).collect();
        rules.sort_by(|one, other| {
            let order = |one: &RuleImpact| Reverse((one.impact.newly_refused, one.impact.newly_admitted));
            order(one).cmp(&order(other)).then_with(|| (&one.domain, &one.rule).cmp(&(&other.domain, &other.rule)))
        });
        rules.truncate(MAX_RULES);
        let tier = |((domain, tier), impact)| TierImpact { domain, tier, impact };
        PlanReport {
            from: times().min().unwrap_or_default(),
            to: times().max().unwrap_or_default(),
            records: records.len() as u64,
            all: self.all,
            changed_callers: changed().map(|(_, stands_for)| stands_for).sum(),
            callers: callers.iter().map(|(_, stands_for)| stands_for).sum(),
            rules,
            tiers: tiers.into_iter().map(tier).collect(),
            worst_paid: worst_paid.map(|(caller, _)| caller.clone()),
            worst: changed().map(|(caller, _)| caller.clone()).take(MAX_CALLERS).collect(),
            uncertain,
            undecided: self.undecided,
        }
    }
}

impl<'r> RuleTally<'r> {
    fn into_impact(((domain, rule), tally): ((&'r str, &'r str), RuleTally<'r>)) -> RuleImpact {
        let RuleTally { impact, changed, examples } = tally;
        let (domain, rule) = (domain.to_owned(), rule.to_owned());
        RuleImpact { domain, rule, impact, callers: changed.len() as u64, examples }
    }
}

fn caller_impact(before: &World<'_>, (domain, caller): CallerName<'_>, tally: &CallerTally) -> CallerImpact {
    let known = before.rules.domain(Some(domain)).ok();
    let tier = known.and_then(|known| {
        // Overrides of a plan do not begin or end.
        let tier = known.tier_of(Some(caller), None, before.tenants, &Timestamp::default);
        known.tiers().get(tier)
    });
    CallerImpact {
        domain: domain.to_owned(),
        caller: caller.to_owned(),
        tier: tier.map(|tier| tier.name.clone()).unwrap_or_default(),
        is_paid: tier.is_some_and(|tier| tier.paid),
        impact: tally.impact,
    }
}

fn example(at: Timestamp, record: &TrafficRecord, after: Played<'_>) -> PlanExample {
    let entries = record.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    PlanExample {
        at,
        attributes: entries.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        is_admitted: after.is_admitted,
        wait: after.wait.span().filter(|wait| !after.is_admitted && *wait > Span::ZERO),
    }
}
