//! What a caller has.

use serde::{Deserialize, Serialize};
use tollgate_rules::tenants::{During, Override, Quota, Selector, Stage};

use super::{Anchor, Faults, Limited, during};
use crate::control::Moment;

/// What a caller has: its tier, and limits of its own.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaDocument {
    /// Its tier; without one, as if nothing were said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Limits that take the place of rules'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideDocument>,
    /// From when on; by default from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Moment>,
    /// Until when; by default for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
    /// The write that had the caller's counters start afresh, if this one did: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_by: Option<u64>,
    /// What takes its place when that begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<QuotaDocument>>,
}

/// A limit that takes the place of a rule's.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideDocument {
    /// The rules whose conditions have exactly this, `endpoint:POST /api/v1/orders`; or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<String>,
    /// Or the rule of this name.
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
    /// With `unit: month`: the day on which the caller's months begin, 1 to 31, or a date that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing_anchor: Option<Anchor>,
    /// With a day, week, month or year: the zone in which it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// From when on; by default as long as the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Moment>,
    /// Until when; by default as long as the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
}

/// The most overrides of a caller.
pub(super) const MOST_OVERRIDES: usize = 64;

impl QuotaDocument {
    /// What it means.
    pub fn meaning(&self, faults: &mut Faults) -> Quota {
        let mut stages = vec![self.stage("", faults)];
        if let Some(next) = &self.next {
            stages.push(next.stage("next.", faults));
            if next.next.is_some() {
                faults.add("next.next", "one change can be scheduled at a time");
            }
        }
        Quota { stages }
    }

    fn stage(&self, at: &str, faults: &mut Faults) -> Stage {
        faults.text(&format!("{at}tier"), self.tier.as_deref());
        let own = faults.during(at, self.effective_at, self.expires_at);
        if self.overrides.len() > MOST_OVERRIDES {
            faults.add(format!("{at}overrides"), format!("there are more than {MOST_OVERRIDES}"));
        }
        let mut overrides = Vec::new();
        for (number, one) in self.overrides.iter().enumerate() {
            let at = format!("{at}overrides[{number}].");
            let (selector, cap) = (one.selector(&at, faults), one.limited().meaning(&at, faults));
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
        Stage { during: own, tier: self.tier.clone(), overrides }
    }

    /// When it holds, what is scheduled left aside.
    pub fn during(&self) -> During {
        during(self.effective_at, self.expires_at)
    }
}

impl OverrideDocument {
    /// Which rules it means.
    pub fn selector(&self, at: &str, faults: &mut Faults) -> Option<Selector> {
        let named = self.rule.as_deref().or(self.descriptor.as_deref());
        faults.text(&format!("{at}descriptor"), named);
        match (self.rule.as_deref(), self.descriptor.as_deref()) {
            (Some(rule), None) => Some(Selector::rule(rule)),
            (None, Some("default")) => Some(Selector::default_rule()),
            (None, Some(descriptor)) => Some(Selector::descriptor(descriptor)),
            (None, None) => {
                let what = "it is missing; write `descriptor` (\"endpoint:POST /orders\" or \"default\") or `rule`";
                faults.add(format!("{at}descriptor"), what);
                None
            }
            (Some(_), Some(_)) => {
                faults.add(format!("{at}descriptor"), "write either `descriptor` or `rule`");
                None
            }
        }
    }

    /// What it holds the caller to.
    pub fn limited(&self) -> Limited<'_> {
        Limited {
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.as_deref(),
            limit: self.limit.as_deref(),
            burst: self.burst,
            billing_anchor: self.billing_anchor.as_ref(),
            zone: self.zone.as_deref(),
        }
    }

    /// How people name what it is for.
    pub fn named(&self) -> &str {
        self.descriptor.as_deref().or(self.rule.as_deref()).unwrap_or("default")
    }

    fn is_twin(&self, other: &OverrideDocument) -> bool {
        (&self.descriptor, &self.rule) == (&other.descriptor, &other.rule)
            && (self.effective_at, self.expires_at) == (other.effective_at, other.expires_at)
    }
}
