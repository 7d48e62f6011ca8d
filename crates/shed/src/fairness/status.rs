//! What an operator sees of a fairness shedder.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{FairnessShedder, MAX_TIERS, lowered};
use crate::mode::ShedMode;

/// The numbers of a fairness shedder at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FairnessStatus {
    /// What the shedder does with what it decides.
    pub mode: ShedMode,
    /// The load of the upstream in relation to the threshold: above 1 rates are lowered, below 0.5 they are restored.
    pub pressure: f64,
    /// How much is lowered: 1 for each tier whose rates are at the fair rate.
    pub amount: f64,
    /// The rate below which no caller of the lowest tier is lowered, in requests a second; none while callers are not counted.
    pub fair_rate: Option<f64>,
    /// Callers that are counted.
    pub callers: usize,
    /// The lowest first.
    pub tiers: [TierStatus; MAX_TIERS],
}

/// The callers of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierStatus {
    /// How far their rates are lowered: 0 not at all, 1 to the fair rate.
    pub lowered: f64,
    /// The most requests a second that one of them may send now, if there is a ceiling.
    pub ceiling: Option<f64>,
    /// Requests that were refused, or would have been in mode `shadow`.
    pub refused: u64,
}

impl FairnessShedder {
    /// The numbers of this moment. It may wait for the pressure to be looked at, some microseconds.
    pub fn status(&self) -> FairnessStatus {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let amount = state.ramp.amount();
        let is_watching = self.is_watching.load(Ordering::Relaxed);
        let tier = |tier: usize| TierStatus {
            lowered: lowered(amount, tier),
            ceiling: Some(state.rates.ceiling(tier, lowered(amount, tier))).filter(|ceiling| ceiling.is_finite()),
            refused: self.refused.0[tier].load(Ordering::Relaxed),
        };
        FairnessStatus {
            mode: self.mode(),
            pressure: state.pressure,
            amount,
            fair_rate: is_watching.then_some(state.rates.fair(0)).filter(|rate| rate.is_finite()),
            callers: if is_watching { state.rates.callers() } else { 0 },
            tiers: std::array::from_fn(tier),
        }
    }
}
