//! Quotas: the tiers and overrides of callers.

use serde::{Deserialize, Serialize};
use tollgate_rules::tenants::{Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange};

use super::limit_terms::selector;
use super::{BillingAnchor, FieldFaults, LimitTerms, during};
use crate::Rfc3339;

/// A caller's tier and overrides.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaDocument {
    /// The caller's tier; by default the one that it has without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The region that owns the caller's counters, for rules with `region: home`; by default one that is derived from the
    /// caller. Counters begin anew in another region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Limits that replace those of rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideDocument>,
    /// The start of the quota; by default the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The end of the quota; by default it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
    /// The write that reset the caller's counters, if this one did: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_by: Option<u64>,
    /// The quota that replaces this one at its own start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<QuotaDocument>>,
}

/// A limit that replaces that of a rule.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideDocument {
    /// The rules that have exactly this condition, `endpoint:POST /api/v1/orders`; or `default` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<String>,
    /// … or the rule of this name.
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
    /// The day on which months begin: [`LimitTerms::billing_anchor`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing_anchor: Option<BillingAnchor>,
    /// The time zone of the limit: [`LimitTerms::zone`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The start of the override; by default that of the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The end of the override; by default that of the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// The most overrides of a caller.
pub(super) const MAX_OVERRIDES: usize = 64;

impl QuotaDocument {
    /// The quota that it means, without what is faulty.
    pub fn to_quota(&self, faults: &mut FieldFaults) -> Quota {
        let mut stages = vec![self.to_stage("", faults)];
        if let Some(next) = &self.next {
            stages.push(next.to_stage("next.", faults));
            if next.next.is_some() {
                faults.add("next.next", "one change can be scheduled at a time");
            }
        }
        Quota { stages }
    }

    fn to_stage(&self, at: &str, faults: &mut FieldFaults) -> QuotaStage {
        faults.check_length(&format!("{at}tier"), self.tier.as_deref());
        faults.check_length(&format!("{at}home"), self.home.as_deref());
        let own = faults.during(at, self.effective_at, self.expires_at);
        if self.overrides.len() > MAX_OVERRIDES {
            faults.add(format!("{at}overrides"), format!("there are more than {MAX_OVERRIDES}"));
        }
        let mut overrides = Vec::new();
        for (number, one) in self.overrides.iter().enumerate() {
            let at = format!("{at}overrides[{number}].");
            let (selector, cap) = (one.selector(&at, faults), one.terms().to_cap(&at, faults));
            let during = match (one.effective_at, one.expires_at) {
                (None, None) => own,
                (from, until) => faults.during(&at, from, until),
            };
            if let (Some(selector), Some(cap)) = (selector, cap) {
                overrides.push(Override { selector, cap, during });
            }
            if self.overrides[..number].iter().any(|other| other.is_twin(one)) {
                faults.add(at.trim_end_matches('.'), "another override says the same of the same rules");
            }
        }
        QuotaStage { during: own, tier: self.tier.clone(), home: self.home.clone(), overrides }
    }

    /// Whether one of its limits is `unlimited` or 0: for many callers, that is a kill switch or a block.
    pub fn is_drastic(&self) -> bool {
        let is_drastic = |one: &OverrideDocument| {
            matches!(
                one.terms().to_cap("", &mut FieldFaults::default()),
                Some(OverrideCap::Unlimited | OverrideCap::Amount(0) | OverrideCap::Rate { amount: 0, .. })
            )
        };
        self.overrides.iter().any(is_drastic) || self.next.as_ref().is_some_and(|next| next.is_drastic())
    }

    /// The period of this quota, without the one that replaces it.
    pub fn during(&self) -> TimeRange {
        during(self.effective_at, self.expires_at)
    }
}

impl OverrideDocument {
    /// The rules that it is for; `None` if there are faults.
    pub fn selector(&self, at: &str, faults: &mut FieldFaults) -> Option<Selector> {
        faults.check_length(&format!("{at}descriptor"), self.rule.as_deref().or(self.descriptor.as_deref()));
        let missing = "it is missing; write `descriptor` (\"endpoint:POST /orders\" or \"default\") or `rule`";
        match selector(self.rule.as_deref(), self.descriptor.as_deref()).and_then(|found| found.ok_or(missing)) {
            Ok(selector) => Some(selector),
            Err(what) => {
                faults.add(format!("{at}descriptor"), what);
                None
            }
        }
    }

    /// Its limit.
    pub fn terms(&self) -> LimitTerms<'_> {
        LimitTerms {
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.as_deref(),
            limit: self.limit.as_deref(),
            burst: self.burst,
            billing_anchor: self.billing_anchor.as_ref(),
            zone: self.zone.as_deref(),
        }
    }

    /// The text that names its rules: the descriptor, the rule's name, or `default`.
    pub fn label(&self) -> &str {
        self.descriptor.as_deref().or(self.rule.as_deref()).unwrap_or("default")
    }

    fn is_twin(&self, other: &OverrideDocument) -> bool {
        (&self.descriptor, &self.rule) == (&other.descriptor, &other.rule)
            && (self.effective_at, self.expires_at) == (other.effective_at, other.expires_at)
    }
}
