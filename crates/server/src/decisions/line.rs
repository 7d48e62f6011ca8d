//! A logged decision as a line of JSON: in files, in the control store, on standard output, and as the API tells it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tollgate::control::Moment;
use tollgate::{Mode, Source, Span, Wait};
use tollgate_observe::{Entry, EntryDescriptor, EntryLimit, Ruling};
use tollgate_rules::ResolvedBy;
use tollgate_rules::tenants::BlockedAs;

use crate::words;

/// A word of a small set, or whatever a newer Tollgate wrote.
type Word = Cow<'static, str>;

/// A logged decision. `tollgate replay` reads `at`, `domain`, `descriptors` and `cost` of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: Moment,
    pub(crate) domain: String,
    pub(crate) caller: Option<String>,
    descriptors: Vec<LineDescriptor>,
    /// Descriptors are left out, since there was too much of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    cost: u64,
    verdict: Word,
    source: Word,
    replay: bool,
    retry_after_seconds: Option<f64>,
    /// The rule that decided it. Its limit is the first.
    pub(crate) rule: Option<String>,
    rules_generation: u64,
    rule_version: Option<u64>,
    limits: Vec<LineLimit>,
    block: Option<Word>,
    region: Option<String>,
    server: String,
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
    /// The most at once, where that is another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    period: String,
    /// Units that were asked of it.
    units: u64,
    used: u64,
    remaining: u64,
    reset_seconds: f64,
    /// When it has room; `null` if it has, or never will.
    wait_seconds: Option<f64>,
    admits: bool,
    key: String,
}

impl Line {
    /// What this server logged.
    pub(super) fn of(entry: Entry, server: &str, region: Option<&str>) -> Line {
        let rule = entry.decider().map(|limit| limit.rule.clone());
        Line {
            at: Moment(entry.at),
            domain: entry.domain,
            caller: entry.caller,
            descriptors: entry.descriptors.into_iter().map(LineDescriptor::of).collect(),
            cut: entry.is_cut,
            cost: entry.cost,
            verdict: entry.ruling.name().into(),
            source: entry.source.name().into(),
            replay: entry.is_replay,
            retry_after_seconds: entry.wait.span().map(seconds),
            rule,
            rules_generation: entry.rules_generation,
            rule_version: entry.rule_version,
            limits: entry.limits.into_iter().map(LineLimit::of).collect(),
            block: entry.block.map(|block| blocked(block).into()),
            region: region.map(str::to_owned),
            server: server.to_owned(),
        }
    }

    /// Why it came out as it did. Of what a newer Tollgate wrote nothing may be known.
    pub(crate) fn why(&self) -> String {
        self.entry().map_or_else(
            || "a newer Tollgate decided it, in words that this one does not know.".to_owned(),
            |entry| entry.why(),
        )
    }

    /// The decision; its descriptors, which nobody asks for, are left out.
    fn entry(&self) -> Option<Entry> {
        let block = match &self.block {
            None => None,
            Some(word) => Some(BLOCKED.into_iter().find(|block| blocked(*block) == word)?),
        };
        Some(Entry {
            at: self.at.0,
            domain: self.domain.clone(),
            caller: self.caller.clone(),
            descriptors: Vec::new(),
            is_cut: self.cut,
            cost: self.cost,
            ruling: Ruling::ALL.into_iter().find(|ruling| ruling.name() == self.verdict)?,
            source: SOURCES.into_iter().find(|source| source.name() == self.source)?,
            is_replay: self.replay,
            wait: self.retry_after_seconds.map_or(Wait::None, |wait| Wait::For(span(wait))),
            rules_generation: self.rules_generation,
            rule_version: self.rule_version,
            is_decided: self.rule.is_some(),
            limits: self.limits.iter().map(LineLimit::limit).collect::<Option<_>>()?,
            block,
        })
    }
}

impl LineDescriptor {
    fn of(descriptor: EntryDescriptor) -> LineDescriptor {
        let entries = descriptor.entries.into_iter().map(|(key, value)| LineEntry { key, value }).collect();
        LineDescriptor { entries, hits_addend: descriptor.hits }
    }
}

impl LineLimit {
    fn of(limit: EntryLimit) -> LineLimit {
        LineLimit {
            rule: limit.rule,
            tier: limit.tier,
            resolved_by: limit.by.name().into(),
            mode: words::mode(limit.mode).into(),
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
        }
    }

    fn limit(&self) -> Option<EntryLimit> {
        Some(EntryLimit {
            rule: self.rule.clone(),
            tier: self.tier.clone(),
            by: RESOLVED.into_iter().find(|by| by.name() == self.resolved_by)?,
            mode: MODES.into_iter().find(|mode| words::mode(*mode) == self.mode)?,
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
        })
    }
}

const MODES: [Mode; 4] = [Mode::Enforce, Mode::AnyOf, Mode::Shadow, Mode::Soft];
const SOURCES: [Source; 5] = [Source::Store, Source::Cache, Source::Local, Source::Assumed, Source::Shed];
const BLOCKED: [BlockedAs; 3] = [BlockedAs::Forbidden, BlockedAs::TooMany, BlockedAs::Marked];
const RESOLVED: [ResolvedBy; 7] = [
    ResolvedBy::Default,
    ResolvedBy::Tier,
    ResolvedBy::Override,
    ResolvedBy::OverrideGlob,
    ResolvedBy::OverrideAll,
    ResolvedBy::Emergency,
    ResolvedBy::Request,
];

fn blocked(block: BlockedAs) -> &'static str {
    match block {
        BlockedAs::Forbidden => "forbidden",
        BlockedAs::TooMany => "too_many",
        BlockedAs::Marked => "marked",
    }
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

fn span(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6).round() as u64)
}
