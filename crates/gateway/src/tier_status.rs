//! What the shedders of an upstream do to tiers and callers at the moment, for operators.

use serde::Serialize;
use tollgate_shed::{MAX_TIERS, ReserveStatus};

use crate::gateway::Gateway;
use crate::upstream::Upstream;

/// The part of a cap that is reserved for a tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReserveStatusOf {
    /// `None`: all callers of tiers without a reserve.
    pub tier: Option<String>,
    /// As a part of the limit.
    pub share: Option<f64>,
    /// In requests, at the current limit.
    pub reserved: u32,
    pub in_flight: u32,
    /// Requests that were refused, or would be in mode `shadow`.
    pub refused: u64,
}

/// The fairness shedder of an upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FairnessStatusOf {
    pub mode: &'static str,
    /// The load in relation to the threshold: above 1 rates are lowered, below 0.5 they are restored.
    pub pressure: f64,
    /// 1 for each tier whose callers are lowered to the fair rate.
    pub lowered: f64,
    /// In requests a second; `None` while callers are not counted.
    pub fair_rate: Option<f64>,
    /// Callers that are counted.
    pub callers: usize,
    /// Those first that give way first.
    pub tiers: Vec<TierStatusOf>,
}

/// The callers of a tier at an upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierStatusOf {
    pub tier: String,
    /// From 0, not at all, to 1, to the fair rate.
    pub lowered: f64,
    /// The most requests a second of one caller, if there is a ceiling.
    pub ceiling: Option<f64>,
    /// Requests that were refused, or would be in mode `shadow`.
    pub refused: u64,
}

impl Gateway {
    /// The names of the tiers of callers, those first that give way first.
    pub(crate) fn tiers(&self) -> Vec<String> {
        let (rules, plan) = (self.rules(), self.plan());
        let Ok(domain) = rules.domain(plan.config.domain.as_deref()) else { return vec!["all".to_owned()] };
        let mut tiers: Vec<_> =
            domain.tiers().iter().enumerate().map(|(number, tier)| (domain.tier_rank(number), tier)).collect();
        tiers.sort_by_key(|(rank, _)| *rank);
        tiers.into_iter().take(MAX_TIERS).map(|(_, tier)| tier.name.clone()).collect()
    }
}

impl Upstream {
    /// With the names of the tiers.
    pub(crate) fn fairness_status(&self, tiers: &[String]) -> Option<FairnessStatusOf> {
        // Without requests nobody else would see that the load has subsided.
        let _ = self.watching_fairness();
        let status = self.fairness.as_ref()?.status();
        let tiers = tiers.iter().zip(status.tiers).map(|(name, tier)| TierStatusOf {
            tier: name.clone(),
            lowered: tier.lowered,
            ceiling: tier.ceiling,
            refused: tier.refused,
        });
        Some(FairnessStatusOf {
            mode: status.mode.name(),
            pressure: status.pressure,
            lowered: status.amount,
            fair_rate: status.fair_rate,
            callers: status.callers,
            tiers: tiers.collect(),
        })
    }
}

impl ReserveStatusOf {
    /// With the names of the tiers that have one.
    pub(crate) fn all(tiers: &[(String, f64)], statuses: &[ReserveStatus]) -> Vec<ReserveStatusOf> {
        let names = tiers.iter().map(|(name, _)| Some(name.clone())).chain([None]);
        let all = names.zip(statuses).map(|(tier, status)| ReserveStatusOf {
            tier,
            share: status.share,
            reserved: status.reserved,
            in_flight: status.in_flight,
            refused: status.refused,
        });
        all.collect()
    }
}

impl FairnessStatusOf {
    /// Refused requests of all tiers.
    pub fn refused(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.refused).sum()
    }
}
