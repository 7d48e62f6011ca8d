//! A logged decision as a line of JSON: in files, in the store of record, on standard output, and in the API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tollgate::{Mode, RegionLink, Source, Span, Wait};
use tollgate_observe::{DecisionEntry, DecisionOutcome, EntryDescriptor, EntryLimit, EntryShed, Repetition};
use tollgate_records::Rfc3339;
use tollgate_rules::ResolvedBy;
use tollgate_rules::tenants::BlockAction;

/// A word of a fixed set, or an unknown one of a newer Tollgate.
type Word = Cow<'static, str>;

/// A logged decision. `tollgate replay` reads `at`, `domain`, `descriptors` and `cost` of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionLine {
    pub at: Rfc3339,
    pub domain: String,
    pub caller: Option<String>,
    descriptors: Vec<LineDescriptor>,
    /// Whether descriptors were omitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    cost: u64,
    verdict: Word,
    source: Word,
    /// How other regions were doing, unless they were together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    regions: Option<Word>,
    replay: bool,
    retry_after_seconds: Option<f64>,
    /// The rule that decided. Its limit is the first.
    pub rule: Option<String>,
    rules_generation: u64,
    rule_version: Option<u64>,
    limits: Vec<LineLimit>,
    block: Option<Word>,
    /// Why a shedder refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shed: Option<LineShed>,
    region: Option<String>,
    server: String,
    /// If the line stands for several decisions: their number, and the time of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineShed {
    /// The shedder: `adaptive`, `worker` or `fleet`.
    by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineDescriptor {
    entries: Vec<LineEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hits_addend: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineEntry {
    key: String,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineLimit {
    rule: String,
    tier: String,
    resolved_by: Word,
    mode: Word,
    limit: u64,
    /// The burst, where it differs from the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    period: String,
    /// Requested units.
    units: u64,
    used: u64,
    remaining: u64,
    reset_seconds: f64,
    /// Seconds until there is room; `null` if there is, or never will be.
    wait_seconds: Option<f64>,
    admits: bool,
    key: String,
    /// The region that owns the counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<String>,
}

impl DecisionLine {
    /// The line of a logged decision.
    pub(super) fn from_entry(entry: DecisionEntry, server: &str, region: Option<&str>) -> DecisionLine {
        let rule = entry.decider().map(|limit| limit.rule.clone());
        DecisionLine {
            at: Rfc3339(entry.at),
            domain: entry.domain,
            caller: entry.caller,
            descriptors: entry.descriptors.into_iter().map(LineDescriptor::from_entry).collect(),
            cut: entry.is_cut,
            cost: entry.cost,
            verdict: entry.outcome.name().into(),
            source: entry.source.name().into(),
            regions: (entry.link != RegionLink::Together).then(|| entry.link.name().into()),
            replay: entry.is_replay,
            retry_after_seconds: entry.wait.span().map(seconds),
            rule,
            rules_generation: entry.rules_generation,
            rule_version: entry.rule_version,
            limits: entry.limits.into_iter().map(LineLimit::from_entry).collect(),
            block: entry.block.map(|block| block.name().into()),
            shed: entry.shed.map(|EntryShed { by, class, route, upstream }| LineShed { by, class, route, upstream }),
            region: region.map(str::to_owned),
            server: server.to_owned(),
            count: entry.repetition.map(|repetition| repetition.count),
            until: entry.repetition.map(|repetition| Rfc3339(repetition.until)),
        }
    }

    /// Explains the decision, unless a newer Tollgate wrote it in unknown words.
    pub fn explain(&self) -> String {
        self.entry().map_or_else(
            || "a newer Tollgate logged this decision; this version can't explain it.".to_owned(),
            |entry| entry.explain(),
        )
    }

    /// The decision, without descriptors.
    fn entry(&self) -> Option<DecisionEntry> {
        let block = match &self.block {
            None => None,
            Some(word) => Some(BlockAction::ALL.into_iter().find(|block| block.name() == word)?),
        };
        Some(DecisionEntry {
            at: self.at.0,
            domain: self.domain.clone(),
            caller: self.caller.clone(),
            descriptors: Vec::new(),
            is_cut: self.cut,
            cost: self.cost,
            outcome: DecisionOutcome::ALL.into_iter().find(|outcome| outcome.name() == self.verdict)?,
            source: SOURCES.into_iter().find(|source| source.name() == self.source)?,
            link: match &self.regions {
                None => RegionLink::Together,
                Some(word) => LINKS.into_iter().find(|link| link.name() == word)?,
            },
            is_replay: self.replay,
            wait: self.retry_after_seconds.map_or(Wait::None, |wait| Wait::For(span(wait))),
            rules_generation: self.rules_generation,
            rule_version: self.rule_version,
            is_decided: self.rule.is_some(),
            limits: self.limits.iter().map(LineLimit::limit).collect::<Option<_>>()?,
            block,
            shed: self.shed.clone().map(|LineShed { by, class, route, upstream }| EntryShed {
                by,
                class,
                route,
                upstream,
            }),
            repetition: self.count.zip(self.until).map(|(count, until)| Repetition { count, until: until.0 }),
        })
    }
}

impl LineDescriptor {
    fn from_entry(descriptor: EntryDescriptor) -> LineDescriptor {
        let entries = descriptor.entries.into_iter().map(|(key, value)| LineEntry { key, value }).collect();
        LineDescriptor { entries, hits_addend: descriptor.hits }
    }
}

impl LineLimit {
    fn from_entry(limit: EntryLimit) -> LineLimit {
        LineLimit {
            rule: limit.rule,
            tier: limit.tier,
            resolved_by: limit.by.name().into(),
            mode: limit.mode.name().into(),
            limit: limit.amount,
            burst: limit.burst,
            period: limit.period,
            units: limit.units,
            used: limit.used,
            remaining: limit.remaining,
            reset_seconds: seconds(limit.reset),
            wait_seconds: limit.wait.span().map(seconds),
            admits: limit.admits,
            key: limit.key,
            region: limit.region,
        }
    }

    fn limit(&self) -> Option<EntryLimit> {
        Some(EntryLimit {
            rule: self.rule.clone(),
            tier: self.tier.clone(),
            by: RESOLVED.into_iter().find(|by| by.name() == self.resolved_by)?,
            mode: MODES.into_iter().find(|mode| mode.name() == self.mode)?,
            amount: self.limit,
            burst: self.burst,
            period: self.period.clone(),
            units: self.units,
            used: self.used,
            remaining: self.remaining,
            reset: span(self.reset_seconds),
            wait: match (self.wait_seconds, self.admits) {
                (Some(wait), _) => Wait::For(span(wait)),
                (None, true) => Wait::None,
                (None, false) => Wait::Forever,
            },
            admits: self.admits,
            key: self.key.clone(),
            region: self.region.clone(),
        })
    }
}

const MODES: [Mode; 4] = [Mode::Enforce, Mode::AnyOf, Mode::Shadow, Mode::Soft];
const SOURCES: [Source; 7] =
    [Source::Store, Source::Lease, Source::Cache, Source::Local, Source::Assumed, Source::Shed, Source::Summed];
const LINKS: [RegionLink; 3] = [RegionLink::Together, RegionLink::Lagging, RegionLink::Apart];
const RESOLVED: [ResolvedBy; 7] = [
    ResolvedBy::Default,
    ResolvedBy::Tier,
    ResolvedBy::Override,
    ResolvedBy::OverrideGlob,
    ResolvedBy::OverrideAll,
    ResolvedBy::Emergency,
    ResolvedBy::Request,
];

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

fn span(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6).round() as u64)
}
