//! Emergencies: limits that override all others until they expire.

use serde::{Deserialize, Serialize};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::tenants::{Emergency, Override, OverrideCap, Selector};

use super::limit_terms::selector;
use super::{FieldFaults, LimitTerms};
use crate::Rfc3339;

/// A limit that overrides all others until it expires.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EmergencyDocument {
    /// The callers: a name, a glob, or `*` for all.
    #[serde(default = "everyone")]
    pub callers: String,
    /// Limit the rules that have this condition, as [`OverrideDocument::descriptor`](super::OverrideDocument::descriptor) …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<String>,
    /// … or the rule of this name. Without both, limit every rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The amount of the limit: [`LimitTerms::requests_per_unit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_unit: Option<u64>,
    /// The time unit of the limit: [`LimitTerms::unit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The limit as one text: [`LimitTerms::limit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The burst of the limit: [`LimitTerms::burst`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// In place of a limit: the percentage of the limit that would apply. 50 halves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// The end of the emergency.
    pub expires_at: Rfc3339,
    /// The operator's reason, which the audit log shows.
    pub reason: String,
}

fn everyone() -> String {
    "*".to_owned()
}

/// The most that limits can be raised to, in percent.
const MAX_PERCENT: u32 = 1_000_000;

impl EmergencyDocument {
    /// The emergency that it means; `None` if there are faults.
    pub fn to_emergency(&self, faults: &mut FieldFaults) -> Option<Emergency> {
        faults.check_length("callers", Some(&self.callers));
        faults.check_reason(&self.reason);
        let selector = match selector(self.rule.as_deref(), self.descriptor.as_deref()) {
            Ok(selector) => Some(selector.unwrap_or(Selector::EVERY)),
            Err(what) => {
                faults.add("descriptor", what);
                None
            }
        };
        let terms = self.terms();
        let cap = match self.percent {
            None => terms.to_cap("", faults),
            Some(_) if terms != LimitTerms::default() => {
                faults.add("percent", "write either `percent` or a limit");
                None
            }
            Some(percent @ ..=MAX_PERCENT) => Some(OverrideCap::Scaled(percent * 100)),
            Some(_) => {
                faults.add("percent", format!("write a number up to {MAX_PERCENT}"));
                None
            }
        };
        let during = super::during(None, Some(self.expires_at));
        let limit = Override { selector: selector?, cap: cap?, during };
        Some(Emergency { callers: Pattern::new(&self.callers), limit })
    }

    /// Its limit, unless it has a percentage.
    pub fn terms(&self) -> LimitTerms<'_> {
        LimitTerms {
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.as_deref(),
            limit: self.limit.as_deref(),
            burst: self.burst,
            ..LimitTerms::default()
        }
    }
}
