//! The records of a sample, oldest first.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tollgate::{Algorithm, DecisionEvent, Limit, LimitEvent, ResolvedBy, Ruleset, Span, Timestamp};
use tollgate_core::KeySecret;
use tollgate_plan::{RecordedCaller, RecordedLimit, TrafficDescriptor, TrafficRecord};
use tollgate_rules::tenants::OverrideCap;
use tollgate_rules::{AppliedTerms, Domain};

use super::selection::Selection;
use super::{MAX_SAMPLED_TIME, SAMPLED_TIME, TrafficExcerpt};
use crate::decision_log::{AttributeMask, truncate_attribute};

/// The records, with their memory bounded.
#[derive(Debug)]
pub(super) struct TrafficRing {
    entries: VecDeque<Entry>,
    /// Entries that were ever added.
    added: u64,
    bytes: usize,
    max_bytes: usize,
    /// Names of attributes and domains, shared by the records.
    names: HashSet<Arc<str>>,
    /// The bounds of digests that were in force, newest last.
    bounds: VecDeque<(Timestamp, u64)>,
}

#[derive(Debug)]
struct Entry {
    digest: u64,
    /// Whether its caller is one of the busiest.
    is_busy: bool,
    record: TrafficRecord,
}

/// The names of the rules and tiers of a ruleset, by the numbers of domains.
struct RuleNames(Vec<DomainNames>);

struct DomainNames {
    domain: Arc<str>,
    rules: Vec<Arc<str>>,
    tiers: Vec<Arc<str>>,
}

/// Names that are shared by records. Others are stored with each.
pub const MAX_NAMES: usize = 1_024;
/// Attributes of a record; the rest is omitted.
const MAX_RECORDED_ATTRIBUTES: usize = 64;
/// Limits of a record; the rest is omitted.
const MAX_RECORDED_LIMITS: usize = 16;

/// Until there are records, one is assumed to take so many bytes.
const FIRST_BYTES: usize = 400;

impl TrafficRing {
    pub(super) fn new(max_bytes: usize) -> TrafficRing {
        TrafficRing {
            entries: VecDeque::new(),
            added: 0,
            bytes: 0,
            max_bytes,
            names: HashSet::new(),
            bounds: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn added(&self) -> u64 {
        self.added
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.entries.front().map(|entry| entry.record.at)
    }

    /// How many records an hour may be added, so that the sample reaches back as far as it should, with an eighth to spare.
    pub(super) fn records_per_hour(&self) -> u64 {
        let bytes = if self.entries.is_empty() { FIRST_BYTES } else { (self.bytes / self.entries.len()).max(1) };
        let sampled = SAMPLED_TIME.as_micros() / 1_000_000;
        (self.max_bytes / bytes * 7 / 8) as u64 * 3_600 / sampled
    }

    pub(super) fn add(
        &mut self,
        event: &DecisionEvent<'_, '_>,
        at: Timestamp,
        digest: u64,
        copies: u32,
        secret: Option<KeySecret>,
    ) {
        let names = event.rules.extension(RuleNames::new);
        let Some(names) = names.0.get(event.matched.domain) else { return };
        let mask = AttributeMask { domain: event.domain(), secret };
        let mut left = MAX_RECORDED_ATTRIBUTES;
        let descriptors = event.request.descriptors.iter().map(|descriptor| {
            let count = descriptor.entries.len().min(left);
            left -= count;
            let entries = descriptor.entries[..count].iter().map(|(name, value)| {
                (self.names.share(name), truncate_attribute(&mask.value(name, value)).into_boxed_str())
            });
            TrafficDescriptor { entries: entries.collect(), hits: descriptor.hits }
        });
        let descriptors = descriptors.collect();
        let limits = event.limits().take(MAX_RECORDED_LIMITS).filter_map(|limit| names.recorded(&limit)).collect();
        let tier = (event.matched.tier as usize != event.domain().default_tier())
            .then(|| names.tiers.get(event.matched.tier as usize).cloned())
            .flatten();
        let caller = RecordedCaller { tier, overrides: names.overrides(event) };
        self.push(Entry {
            digest,
            is_busy: copies > 1,
            record: TrafficRecord {
                at,
                domain: Some(names.domain.clone()),
                descriptors,
                cost: event.request.cost,
                copies,
                callers: 1,
                caller,
                limits,
            },
        });
    }

    fn push(&mut self, entry: Entry) {
        self.added += 1;
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.max_bytes {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
        }
    }

    /// Drops what is older.
    pub(super) fn expire(&mut self, before: Timestamp) {
        while self.oldest().is_some_and(|at| at < before) {
            self.pop();
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
    }

    pub(super) fn note_bound(&mut self, now: Timestamp, below: u64) {
        self.bounds.push_back((now, below));
        let since = now.before(MAX_SAMPLED_TIME);
        while self.bounds.front().is_some_and(|(at, _)| *at < since) {
            self.bounds.pop_front();
        }
    }

    /// The records since a time, of the callers that were recorded all the time.
    pub(super) fn excerpt(&self, since: Timestamp, selection: &Selection) -> TrafficExcerpt {
        let bounds = self.bounds.iter().filter(|(at, _)| *at >= since).map(|(_, below)| *below);
        let below = bounds.chain([selection.below()]).min().unwrap_or(u64::MAX);
        let callers = u32::try_from(u64::MAX / below.max(1)).unwrap_or(u32::MAX);
        let mut is_complete = below == u64::MAX;
        let mut records = Vec::with_capacity(self.entries.len());
        for Entry { digest, is_busy, record } in self.entries.iter().filter(|entry| entry.record.at >= since) {
            is_complete &= !is_busy;
            let callers = if *is_busy { 1 } else { callers };
            if *is_busy || *digest <= below {
                records.push(TrafficRecord { callers, ..record.clone() });
            }
        }
        TrafficExcerpt { records, is_complete }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + record_bytes(&self.record)
    }
}

/// The memory of a record besides itself. Shared names are not counted.
fn record_bytes(record: &TrafficRecord) -> usize {
    let entries = record.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let entries: usize = entries.map(|(_, value)| size_of::<(Arc<str>, Box<str>)>() + value.len()).sum();
    let descriptors = record.descriptors.len() * size_of::<TrafficDescriptor>();
    let limits = record.limits.len() * size_of::<RecordedLimit>();
    entries + descriptors + limits + record.caller.overrides.len() * size_of::<(Arc<str>, OverrideCap)>()
}

/// Texts that records share.
trait SharedNames {
    fn share(&mut self, name: &str) -> Arc<str>;
}

impl SharedNames for HashSet<Arc<str>> {
    fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.get(name) {
            return shared.clone();
        }
        let shared: Arc<str> = name.into();
        if self.len() < MAX_NAMES {
            self.insert(shared.clone());
        }
        shared
    }
}

impl RuleNames {
    fn new(rules: &Ruleset) -> RuleNames {
        RuleNames(rules.domains().iter().map(DomainNames::new).collect())
    }
}

impl DomainNames {
    fn new(domain: &Domain) -> DomainNames {
        DomainNames {
            domain: domain.name().into(),
            rules: domain.rules().iter().map(|rule| rule.name().into()).collect(),
            tiers: domain.tiers().iter().map(|tier| tier.name.as_str().into()).collect(),
        }
    }

    fn rule(&self, number: Option<u32>) -> Option<Arc<str>> {
        self.rules.get(number? as usize).cloned()
    }

    /// The counter of a limit before the request.
    fn recorded(&self, limit: &LimitEvent<'_, '_>) -> Option<RecordedLimit> {
        let (AppliedTerms::Tier(_) | AppliedTerms::Override(_)) = limit.applied.terms else { return None };
        let after = limit.limit().quota().saturating_sub(limit.reading.remaining);
        let used = after.saturating_sub(limit.reading.taken);
        Some(RecordedLimit { rule: self.rule(limit.applied.rule)?, period: period(limit.limit()), used })
    }

    /// The caller's own limits.
    fn overrides(&self, event: &DecisionEvent<'_, '_>) -> Box<[(Arc<str>, OverrideCap)]> {
        let is_own = |by: ResolvedBy| {
            matches!(
                by,
                ResolvedBy::Override | ResolvedBy::OverrideGlob | ResolvedBy::OverrideAll | ResolvedBy::Emergency
            )
        };
        let limited = event.matched.applied.iter().filter_map(|applied| {
            let AppliedTerms::Override(place) = applied.terms else { return None };
            let rule = event.domain().rule(applied)?;
            // A region's share is followed by the limit of all regions together.
            let place = usize::from(place) + usize::from(rule.region().share().is_some());
            Some((self.rule(applied.rule)?, cap(event.matched.limits.get(place)?)))
        });
        let unlimited = event.matched.unlimited.iter().filter(|applied| is_own(applied.by));
        let unlimited = unlimited.filter_map(|applied| Some((self.rule(applied.rule)?, OverrideCap::Unlimited)));
        limited.chain(unlimited).take(MAX_RECORDED_LIMITS).collect()
    }
}

fn period(limit: &Limit) -> Span {
    limit.period().span()
}

fn cap(limit: &Limit) -> OverrideCap {
    match limit.algorithm() {
        Algorithm::Concurrency => OverrideCap::Amount(limit.amount()),
        _ => {
            let burst = (limit.quota() != limit.amount()).then_some(limit.quota());
            OverrideCap::Rate { amount: limit.amount(), period: limit.period().clone(), burst }
        }
    }
}
