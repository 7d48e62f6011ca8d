//! A limit that goes before all others, for a time.

use serde::{Deserialize, Serialize};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::tenants::{Emergency, Override, OverrideCap, Selector};

use super::{Faults, Limited};
use crate::control::Moment;

/// A limit that goes before all others, for a time.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EmergencyDocument {
    /// For which callers: a name, a glob, or `*`.
    #[serde(default = "everyone")]
    pub callers: String,
    /// Of the rules whose conditions have exactly this, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<String>,
    /// … of the rule of this name, or else of every rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// So many units …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_unit: Option<u64>,
    /// … in a `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Or both in one text: `500/30s`, `20 concurrent`, `unlimited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The burst of a bucket; by default in the rule's proportion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Or so much of what would apply: 50 is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Until when.
    pub expires_at: Moment,
    /// Why.
    pub reason: String,
}

fn everyone() -> String {
    "*".to_owned()
}

/// The most that limits can be raised to, in percent.
const MOST_PERCENT: u32 = 1_000_000;

impl EmergencyDocument {
    /// What it means.
    pub fn meaning(&self, domain: &str, faults: &mut Faults) -> Option<Emergency> {
        faults.text("callers", Some(&self.callers));
        if self.reason.trim().is_empty() {
            faults.add("reason", "it is missing; say why, for those who find it in the audit log");
        }
        faults.text("reason", Some(&self.reason));
        let selector = match (self.rule.as_deref(), self.descriptor.as_deref()) {
            (None, None) => Some(Selector::EVERY),
            (Some(rule), None) => Some(Selector::rule(rule)),
            (None, Some("default")) => Some(Selector::default_rule()),
            (None, Some(descriptor)) => Some(Selector::descriptor(descriptor)),
            (Some(_), Some(_)) => {
                faults.add("descriptor", "write either `descriptor` or `rule`");
                None
            }
        };
        let limited = Limited {
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.as_deref(),
            limit: self.limit.as_deref(),
            burst: self.burst,
            ..Limited::default()
        };
        let cap = match self.percent {
            None => limited.meaning("", faults),
            Some(_) if limited != Limited::default() => {
                faults.add("percent", "write either `percent` or a limit");
                None
            }
            Some(percent @ ..=MOST_PERCENT) => Some(OverrideCap::Scaled(percent * 100)),
            Some(_) => {
                faults.add("percent", format!("write a number up to {MOST_PERCENT}"));
                None
            }
        };
        let during = super::during(None, Some(self.expires_at));
        Some(Emergency {
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            callers: Pattern::new(&self.callers),
            limit: Override { selector: selector?, cap: cap?, during },
        })
    }
}
