//! Recorded requests.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::{Period, Span, Timestamp};
use tollgate_rules::tenants::{Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange};
use tollgate_rules::{Ruleset, Tenants};

/// A decided request, as far as another decision about it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficRecord {
    /// When it was decided, by the clock of its counters.
    pub at: Timestamp,
    /// Its domain; `None` if the rules have only one.
    pub domain: Option<Arc<str>>,
    /// Its attributes. Private values may be masked, if they always are in the same way.
    pub descriptors: Box<[TrafficDescriptor]>,
    /// Its cost, where no descriptor has its own.
    pub cost: u64,
    /// The requests of the same caller that it stands for: at least 1.
    pub copies: u32,
    /// The callers that its caller stands for: at least 1. If it is 1, all requests of the caller are recorded, and those of
    /// other callers may not be.
    pub callers: u32,
    /// What was known of its caller.
    pub caller: RecordedCaller,
    /// The limits that it met, and their counters.
    pub limits: Box<[RecordedLimit]>,
}

/// A list of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficDescriptor {
    /// Names and values.
    pub entries: Box<[(Arc<str>, Box<str>)]>,
    /// Its cost, if it has its own.
    pub hits: Option<u64>,
}

/// What was known of a caller when its request was decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedCaller {
    /// The name of its tier.
    pub tier: Option<Arc<str>>,
    /// Its own limits, by the names of rules.
    pub overrides: Box<[(Arc<str>, OverrideCap)]>,
}

/// The counter of a limit, before a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedLimit {
    /// The rule.
    pub rule: Arc<str>,
    /// The length of the period.
    pub period: Span,
    /// The units in use.
    pub used: u64,
}

impl TrafficRecord {
    /// The value of an attribute, in any descriptor.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut entries = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        entries.find(|(other, _)| **other == *name).map(|(_, value)| &**value)
    }

    /// Who sent it, by these rules: the domain, and the value of the domain's `entity`.
    pub fn caller<'r>(&'r self, rules: &'r Ruleset) -> Option<(&'r str, &'r str)> {
        let domain = rules.domain(self.domain.as_deref()).ok()?;
        Some((domain.name(), self.attribute(domain.entity()?)?))
    }

    /// The requests that it stands for, of all callers.
    pub fn requests(&self) -> u64 {
        u64::from(self.copies.max(1)) * u64::from(self.callers.max(1))
    }

    /// The counter of a rule before the request, if the rule's period was the same.
    pub(crate) fn used(&self, rule: &str, period: &Period) -> Option<u64> {
        self.limits.iter().find(|limit| *limit.rule == *rule && limit.period == period.span()).map(|limit| limit.used)
    }
}

/// The callers of recorded requests, by these rules, with the tiers and the limits that they had: the newest ones.
pub fn tenants_of(records: &[TrafficRecord], rules: &Ruleset) -> Tenants {
    let mut newest: HashMap<(&str, &str), &TrafficRecord, foldhash::fast::RandomState> = HashMap::default();
    for record in records {
        if let Some(name) = record.caller(rules) {
            let held = newest.entry(name).or_insert(record);
            if held.at < record.at {
                *held = record;
            }
        }
    }
    let tenants = Tenants::default();
    for ((domain, name), record) in newest {
        let RecordedCaller { tier, overrides } = &record.caller;
        if tier.is_none() && overrides.is_empty() {
            continue;
        }
        let own = |(rule, cap): &(Arc<str>, OverrideCap)| Override {
            selector: Selector::rule(rule),
            cap: cap.clone(),
            during: TimeRange::ALWAYS,
        };
        let stage = QuotaStage {
            during: TimeRange::ALWAYS,
            tier: tier.as_deref().map(str::to_owned),
            home: None,
            overrides: overrides.iter().map(own).collect(),
        };
        tenants.set_quota(domain, name, Some(&Quota { stages: vec![stage] }));
    }
    tenants
}
