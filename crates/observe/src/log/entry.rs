//! One decision as it is logged: all that is needed to say why, and to decide it again.

use std::fmt::Write as _;

use tollgate::{Algorithm, Mode, Replay, Seen, SeenLimit, Source, Span, Timestamp, Wait};
use tollgate_rules::tenants::BlockedAs;
use tollgate_rules::{AppliedTerms, ResolvedBy};

use super::cut::cut;
use crate::ruling::{Ruled, Ruling};
use crate::tally::RowName;
use crate::words;

/// A decision as it is logged. It borrows nothing, and its texts are bounded.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Whose rules.
    pub domain: String,
    /// The value of the domain's `entity`, if the request had it.
    pub caller: Option<String>,
    /// What was asked.
    pub descriptors: Vec<EntryDescriptor>,
    /// Whether some of it is left out, since it was too long.
    pub is_cut: bool,
    /// What it cost where no descriptor says otherwise.
    pub cost: u64,
    /// How it came out.
    pub ruling: Ruling,
    /// Who said so.
    pub source: Source,
    /// Whether it was decided before, under the same idempotency key.
    pub is_replay: bool,
    /// How long the caller was to stay away.
    pub wait: Wait,
    /// The rules by which it was decided.
    pub rules_generation: u64,
    /// Which version of the rule decided it, where the rule has versions.
    pub rule_version: Option<u64>,
    /// Whether one of the limits decided it: then it is the first.
    pub is_decided: bool,
    /// The limits that had a say, at most [`MOST_LIMITS`].
    pub limits: Vec<EntryLimit>,
    /// What a caller is told that is blocked.
    pub block: Option<BlockedAs>,
}

/// One list of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryDescriptor {
    /// Names and values.
    pub entries: Vec<(String, String)>,
    /// What it costs, where that differs from the request's cost.
    pub hits: Option<u64>,
}

/// One limit that had a say, and how its counter stood.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryLimit {
    /// Its rule.
    pub rule: String,
    /// The tier that it is for, or what stands for it.
    pub tier: String,
    /// How it came to be the one that applies.
    pub by: ResolvedBy,
    /// What follows if there is no room.
    pub mode: Mode,
    /// Units in a period, or at a time.
    pub amount: u64,
    /// The most at once, where that is another number.
    pub burst: Option<u64>,
    /// `minute`, `30s`; [`EntryLimit::CONCURRENT`] where it counts what is in flight.
    pub period: String,
    /// Units that were asked of it.
    pub units: u64,
    /// Units that were used, after the decision.
    pub used: u64,
    /// Units that were left.
    pub remaining: u64,
    /// When it is whole again, or its period ends.
    pub reset: Span,
    /// When it has room.
    pub wait: Wait,
    /// Whether it had.
    pub admits: bool,
    /// Whose counter: the values that name it. Empty where all share one.
    pub key: String,
}

/// The most limits of an entry.
pub const MOST_LIMITS: usize = 32;
/// The most bytes that its descriptors have; what comes after is left out.
pub const MOST_TEXT: usize = 16 << 10;

/// What an entry takes beside its texts: itself, and the heads of what it owns.
const HEAD: usize = size_of::<Entry>();
const PAIR: usize = size_of::<(String, String)>();

impl EntryLimit {
    /// The period of limits on requests in flight.
    pub const CONCURRENT: &str = "concurrent";

    /// The most units that can be used.
    pub fn quota(&self) -> u64 {
        self.burst.unwrap_or(self.amount)
    }
}

impl Entry {
    /// What is logged of a decision.
    pub(super) fn of(seen: &Seen<'_, '_>, ruled: Ruled, caller: Option<&str>) -> Entry {
        let (descriptors, is_cut) = descriptors(seen);
        let decider = ruled.decider.and_then(|at| seen.limit(at));
        let others = (0..seen.matched.applied.len()).filter(|at| Some(*at) != ruled.decider);
        let limits = decider.into_iter().chain(others.filter_map(|at| seen.limit(at)));
        Entry {
            at: seen.settlement.at,
            domain: seen.domain().name().to_owned(),
            caller: caller.map(cut),
            descriptors,
            is_cut,
            cost: seen.request.cost,
            ruling: ruled.ruling,
            source: seen.verdict.source,
            is_replay: matches!(seen.settlement.replay, Replay::Again { .. }),
            wait: seen.verdict.wait,
            rules_generation: seen.rules.generation(),
            rule_version: decider.and_then(|limit| limit.rule.version()),
            is_decided: decider.is_some(),
            limits: limits.take(MOST_LIMITS).map(|limit| EntryLimit::of(seen, &limit)).collect(),
            block: seen.matched.block.map(|block| block.told),
        }
    }

    /// The limit that decided it: the one that refused, else the one that would have, else the tightest.
    pub fn decider(&self) -> Option<&EntryLimit> {
        self.limits.first().filter(|_| self.is_decided)
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let pairs = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        let pairs: usize = pairs.map(|(key, value)| PAIR + key.len() + value.len()).sum();
        let limits = self.limits.iter();
        let limits: usize = limits
            .map(|one| size_of::<EntryLimit>() + one.rule.len() + one.tier.len() + one.period.len() + one.key.len())
            .sum();
        let descriptors = self.descriptors.len() * size_of::<EntryDescriptor>();
        HEAD + self.domain.len() + self.caller.as_ref().map_or(0, String::len) + descriptors + pairs + limits
    }
}

impl EntryLimit {
    fn of(seen: &Seen<'_, '_>, limit: &SeenLimit<'_, '_>) -> EntryLimit {
        let (held_to, reading) = (limit.limit(), limit.reading);
        let quota = held_to.quota();
        EntryLimit {
            rule: limit.rule.name().to_owned(),
            tier: tier(seen, limit).to_owned(),
            by: limit.applied.by,
            mode: limit.applied.mode,
            amount: held_to.amount(),
            burst: (quota != held_to.amount()).then_some(quota),
            period: match held_to.algorithm() {
                Algorithm::Concurrency => EntryLimit::CONCURRENT.to_owned(),
                _ => words::period(held_to.period()),
            },
            units: limit.charge.units,
            used: quota.saturating_sub(reading.remaining),
            remaining: reading.remaining,
            reset: reading.reset_after,
            wait: reading.wait,
            admits: reading.admits,
            key: key(limit),
        }
    }
}

/// The value of the domain's `entity` in a request, in whichever descriptor.
#[inline]
pub(super) fn caller<'s>(seen: &Seen<'s, '_>) -> Option<&'s str> {
    let entity = seen.domain().entity()?;
    let entries = seen.request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    entries.into_iter().find(|(name, _)| *name == entity).map(|(_, value)| *value)
}

fn tier<'s>(seen: &Seen<'s, '_>, limit: &SeenLimit<'s, '_>) -> &'s str {
    match (limit.applied.terms, limit.applied.by) {
        (AppliedTerms::Requested(_), _) | (_, ResolvedBy::Request) => RowName::REQUEST,
        (AppliedTerms::Override(_), ResolvedBy::Emergency) => RowName::EMERGENCY,
        (AppliedTerms::Override(_), _) => RowName::OVERRIDE,
        (AppliedTerms::Tier(_), _) if !limit.rule.is_by_tier() => RowName::DEFAULT,
        (AppliedTerms::Tier(tier), _) => {
            seen.domain().tiers().get(usize::from(tier)).map_or(RowName::DEFAULT, |tier| &tier.name)
        }
    }
}

/// The values of a counter's key, parted by commas.
fn key(limit: &SeenLimit<'_, '_>) -> String {
    let mut key = String::new();
    for (place, value) in limit.charge.key.values().iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // A text takes whatever is written to it.
        let _ = write!(key, "{comma}{value}");
        if key.len() > super::LONGEST_TEXT {
            break;
        }
    }
    cut(&key)
}

fn descriptors(seen: &Seen<'_, '_>) -> (Vec<EntryDescriptor>, bool) {
    let (mut all, mut left) = (Vec::with_capacity(seen.request.descriptors.len()), MOST_TEXT);
    for descriptor in seen.request.descriptors {
        let mut kept = EntryDescriptor { entries: Vec::with_capacity(descriptor.entries.len()), hits: descriptor.hits };
        for (name, value) in descriptor.entries {
            let (name, value) = (cut(name), cut(value));
            match left.checked_sub(name.len() + value.len()) {
                Some(rest) => left = rest,
                None => {
                    all.push(kept);
                    return (all, true);
                }
            }
            kept.entries.push((name, value));
        }
        all.push(kept);
    }
    (all, false)
}
