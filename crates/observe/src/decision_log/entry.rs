//! One logged decision: everything needed to explain it, and to decide it again.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tollgate::{
    Algorithm, DecisionEvent, Descriptor, LimitEvent, Mode, RegionLink, Replay, Source, Span, Timestamp, Wait,
};
use tollgate_core::KeySecret;
use tollgate_rules::tenants::BlockAction;
use tollgate_rules::{AppliedTerms, Domain, ResolvedBy};

use super::repeats::Repetition;
use super::sample::{caller_digest, hash_bytes};
use super::shed::EntryShed;
use super::truncate::{truncate, truncate_to};
use crate::display;
use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::tally::RowName;

/// A logged decision. It borrows nothing, and its texts are bounded.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionEntry {
    /// The time of the decision, by the store's clock.
    pub at: Timestamp,
    /// The domain of the request.
    pub domain: String,
    /// The value of the domain's `entity`, if the request had it. Private values are masked here and below.
    pub caller: Option<String>,
    /// The descriptors of the request.
    pub descriptors: Vec<EntryDescriptor>,
    /// Whether descriptors were omitted because they are too long.
    pub is_cut: bool,
    /// The cost of the request, where no descriptor has its own.
    pub cost: u64,
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The source of the decision.
    pub source: Source,
    /// How other regions were doing, if units of its limits are debited there.
    pub link: RegionLink,
    /// Whether it repeats an earlier decision with the same idempotency key.
    pub is_replay: bool,
    /// When the caller may retry.
    pub wait: Wait,
    /// The generation of the rules that decided it.
    pub rules_generation: u64,
    /// The version of the rule that decided it, where the rule has versions.
    pub rule_version: Option<u64>,
    /// Whether a limit decided it: then that limit is the first.
    pub is_decided: bool,
    /// The evaluated limits, at most [`MAX_LIMITS`].
    pub limits: Vec<EntryLimit>,
    /// The response to blocked callers, if the caller is blocked.
    pub block: Option<BlockAction>,
    /// Why a shedder refused it, if one did.
    pub shed: Option<EntryShed>,
    /// If it stands for several decisions: their number.
    pub repetition: Option<Repetition>,
}

/// One descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryDescriptor {
    /// Names and values.
    pub entries: Vec<(String, String)>,
    /// Its cost, where that differs from the request's cost.
    pub hits: Option<u64>,
}

/// One evaluated limit, and the state of its counter.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryLimit {
    /// Its rule.
    pub rule: String,
    /// The tier, or its placeholder.
    pub tier: String,
    /// Why this limit applies.
    pub by: ResolvedBy,
    /// The effect of exceeding the limit.
    pub mode: Mode,
    /// Units per period, or at a time.
    pub amount: u64,
    /// The burst, where it differs from the amount.
    pub burst: Option<u64>,
    /// `minute`, `30s`; [`EntryLimit::CONCURRENT`] for limits on requests in flight.
    pub period: String,
    /// Requested units.
    pub units: u64,
    /// Used units, after the decision.
    pub used: u64,
    /// Remaining units.
    pub remaining: u64,
    /// The time until the counter is full again or its period ends.
    pub reset: Span,
    /// The time until there is room.
    pub wait: Wait,
    /// Whether there was room.
    pub admits: bool,
    /// The values that identify the counter. Empty if all callers share one.
    pub key: String,
    /// The region that owns the counter, if one of them does.
    pub region: Option<String>,
}

/// Limits of an entry.
pub const MAX_LIMITS: usize = 32;
/// Bytes of an entry's descriptors; the rest is omitted.
pub const MAX_DESCRIPTOR_BYTES: usize = 4 << 10;
/// Bytes of an attribute's name or value; the rest is truncated. The caller has [more](super::MAX_TEXT_BYTES).
pub const MAX_VALUE_BYTES: usize = 256;

/// The size of an entry without its texts.
const ENTRY_SIZE: usize = size_of::<DecisionEntry>();
const PAIR_SIZE: usize = size_of::<(String, String)>();

impl EntryLimit {
    /// The period of limits on requests in flight.
    pub const CONCURRENT: &str = "concurrent";

    /// The maximal number of units in use.
    pub fn quota(&self) -> u64 {
        self.burst.unwrap_or(self.amount)
    }
}

impl DecisionEntry {
    /// Builds the entry of a decision. Private values are masked with the secret, if there is one.
    pub(super) fn from_event(
        event: &DecisionEvent<'_, '_>,
        result: DecisionResult,
        caller: Option<&str>,
        secret: Option<KeySecret>,
    ) -> DecisionEntry {
        let mask = AttributeMask { domain: event.domain(), secret };
        let (descriptors, is_cut) = copy_descriptors(event.request.descriptors, &mask);
        let decider = result.decider.and_then(|at| event.limit(at));
        let others = (0..event.matched.applied.len()).filter(|at| Some(*at) != result.decider);
        let limits = decider.into_iter().chain(others.filter_map(|at| event.limit(at)));
        DecisionEntry {
            at: event.settlement.at,
            domain: event.domain().name().to_owned(),
            caller: caller.map(|caller| truncate(&mask.value(mask.domain.entity().unwrap_or_default(), caller))),
            descriptors,
            is_cut,
            cost: event.request.cost,
            outcome: result.outcome,
            source: event.verdict.source,
            link: event.settlement.link,
            is_replay: matches!(event.settlement.replay, Replay::Again { .. }),
            wait: event.verdict.wait,
            rules_generation: event.rules.generation(),
            rule_version: decider.and_then(|limit| limit.rule.version()),
            is_decided: decider.is_some(),
            limits: limits.take(MAX_LIMITS).map(|limit| EntryLimit::from_event(event, &limit, secret)).collect(),
            block: event.matched.block.map(|block| block.action),
            shed: EntryShed::from_event(event, result),
            repetition: None,
        }
    }

    /// The limit that decided: the one that refused, else the one that would have, else the tightest.
    pub fn decider(&self) -> Option<&EntryLimit> {
        self.limits.first().filter(|_| self.is_decided)
    }

    /// Approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let pairs = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        let pairs: usize = pairs.map(|(key, value)| PAIR_SIZE + key.len() + value.len()).sum();
        let limits = self.limits.iter();
        let limits: usize = limits
            .map(|one| {
                let region = one.region.as_ref().map_or(0, String::len);
                size_of::<EntryLimit>() + one.rule.len() + one.tier.len() + one.period.len() + one.key.len() + region
            })
            .sum();
        let descriptors = self.descriptors.len() * size_of::<EntryDescriptor>();
        let shed = self.shed.as_ref().map_or(0, |shed| {
            let texts = [&shed.class, &shed.route, &shed.upstream].into_iter().flatten();
            shed.by.len() + texts.map(String::len).sum::<usize>()
        });
        ENTRY_SIZE
            + shed
            + self.domain.len()
            + self.caller.as_ref().map_or(0, String::len)
            + descriptors
            + pairs
            + limits
    }
}

impl EntryLimit {
    fn from_event(event: &DecisionEvent<'_, '_>, limit: &LimitEvent<'_, '_>, secret: Option<KeySecret>) -> EntryLimit {
        let (terms, reading) = (limit.limit(), limit.reading);
        let quota = terms.quota();
        EntryLimit {
            rule: limit.rule.name().to_owned(),
            tier: tier(event, limit).to_owned(),
            by: limit.applied.by,
            mode: limit.applied.mode,
            amount: terms.amount(),
            burst: (quota != terms.amount()).then_some(quota),
            period: match terms.algorithm() {
                Algorithm::Concurrency => EntryLimit::CONCURRENT.to_owned(),
                _ => display::period(terms.period()),
            },
            units: limit.charge.units,
            used: limit.quota.saturating_sub(reading.remaining),
            remaining: reading.remaining,
            reset: reading.reset_after,
            wait: reading.wait,
            admits: reading.admits,
            key: key(limit, secret),
            region: limit.rule.owner(limit.charge.key.region()).map(str::to_owned),
        }
    }
}

/// Masks the values of private attributes.
pub(crate) struct AttributeMask<'s> {
    pub(crate) domain: &'s Domain,
    /// `None` masks nothing.
    pub(crate) secret: Option<KeySecret>,
}

impl AttributeMask<'_> {
    pub(crate) fn value<'v>(&self, attribute: &str, value: &'v str) -> Cow<'v, str> {
        match self.secret.filter(|_| self.domain.is_private(attribute)) {
            Some(secret) => secret.mask(value).to_string().into(),
            None => value.into(),
        }
    }
}

/// The value of the domain's `entity` in a request, in any descriptor.
#[inline]
pub(crate) fn caller<'s>(event: &DecisionEvent<'s, '_>) -> Option<&'s str> {
    let entity = event.domain().entity()?;
    let entries = event.request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    entries.into_iter().find(|(name, _)| *name == entity).map(|(_, value)| *value)
}

/// Identifies the caller and the rule of a refusal: the domain, and the caller or else the counter.
pub(super) fn repeat_digest(event: &DecisionEvent<'_, '_>, result: DecisionResult) -> u64 {
    let decider = result.decider.and_then(|at| event.limit(at));
    let rule = decider.as_ref().map_or("", |limit| limit.rule.name());
    let of_rule = caller_digest(event.domain().name(), rule);
    if decider.is_some_and(|limit| limit.rule.sheds()) {
        // In an overload, requests of all callers are refused.
        return of_rule;
    }
    if let Some(caller) = caller(event) {
        return hash_bytes(of_rule, caller.as_bytes());
    }
    let mut hasher = DefaultHasher::new();
    of_rule.hash(&mut hasher);
    decider.iter().flat_map(|limit| limit.charge.key.values()).for_each(|value| value.hash(&mut hasher));
    hasher.finish()
}

fn tier<'s>(event: &DecisionEvent<'s, '_>, limit: &LimitEvent<'s, '_>) -> &'s str {
    match (limit.applied.terms, limit.applied.by) {
        (AppliedTerms::Requested(_), _) | (_, ResolvedBy::Request) => RowName::REQUEST,
        (AppliedTerms::Override(_), ResolvedBy::Emergency) => RowName::EMERGENCY,
        (AppliedTerms::Override(_), _) => RowName::OVERRIDE,
        (AppliedTerms::Tier(row), _) => limit.rule.row_name(event.domain(), row),
    }
}

/// The name or the value of an attribute, truncated as entries and records have it.
pub fn truncate_attribute(value: &str) -> String {
    truncate_to(value, MAX_VALUE_BYTES)
}

/// The values of a counter's key, separated by commas.
fn key(limit: &LimitEvent<'_, '_>, secret: Option<KeySecret>) -> String {
    let (mut key, private) = (String::new(), limit.charge.key.scope().private());
    for (place, value) in limit.charge.key.values().iter().enumerate() {
        if place > 0 {
            key.push(',');
        }
        let secret = secret.filter(|_| private.contains(place));
        display::value(&mut key, *value, secret);
        if key.len() > super::MAX_TEXT_BYTES {
            break;
        }
    }
    truncate(&key)
}

/// The descriptors of a request with masked values, and whether some were omitted.
pub(super) fn copy_descriptors(
    descriptors: &[Descriptor<'_>],
    mask: &AttributeMask<'_>,
) -> (Vec<EntryDescriptor>, bool) {
    let (mut all, mut left) = (Vec::with_capacity(descriptors.len()), MAX_DESCRIPTOR_BYTES);
    for descriptor in descriptors {
        let mut copy = EntryDescriptor { entries: Vec::with_capacity(descriptor.entries.len()), hits: descriptor.hits };
        for (name, value) in descriptor.entries {
            let (name, value) = (truncate_attribute(name), truncate_attribute(&mask.value(name, value)));
            match left.checked_sub(name.len() + value.len()) {
                Some(rest) => left = rest,
                None => {
                    all.push(copy);
                    return (all, true);
                }
            }
            copy.entries.push((name, value));
        }
        all.push(copy);
    }
    (all, false)
}
