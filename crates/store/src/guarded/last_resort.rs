//! The bound on what passes although nobody counted it.

use std::sync::{Mutex, PoisonError};

use tollgate_core::algorithm::Asked;
use tollgate_core::{Algorithm, ClaimId, Limit, Period, Span, State, Timestamp};

/// One bucket for the whole process.
#[derive(Debug)]
pub(super) struct LastResort {
    limit: Limit,
    state: Mutex<State>,
}

impl LastResort {
    /// So many requests a second, at most as many as can be counted.
    pub(super) fn new(amount: u64) -> Option<LastResort> {
        let period = Period::fixed(Span::from_secs(1)).ok()?;
        let amount = amount.min(period.most());
        let limit = Limit::new(amount, period, Algorithm::Bucket { burst: amount, paced: false }).ok()?;
        Some(LastResort { limit, state: Mutex::default() })
    }

    /// Whether one more request may pass.
    pub(super) fn takes(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.advance(&self.limit, self.limit.period().tick().at(now)).now;
        let asked = Asked { limit: &self.limit, now, by: ClaimId::default(), units: 1 };
        state.admits(&asked) && state.spend(&asked) > 0
    }
}
