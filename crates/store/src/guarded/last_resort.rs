//! The rate limit on requests that pass uncounted.

use std::sync::{Mutex, PoisonError};

use tollgate_core::algorithm::TickCharge;
use tollgate_core::{Algorithm, ClaimId, CounterState, Limit, Period, Span, Timestamp};

/// One token bucket for the whole process.
#[derive(Debug)]
pub(super) struct LastResort {
    limit: Limit,
    state: Mutex<CounterState>,
}

impl LastResort {
    /// A limit of `amount` requests per second, capped at what can be counted.
    pub(super) fn new(amount: u64) -> Option<LastResort> {
        let period = Period::fixed(Span::from_secs(1)).ok()?;
        let amount = amount.min(period.max_count());
        let limit = Limit::new(amount, period, Algorithm::Bucket { burst: amount, paced: false }).ok()?;
        Some(LastResort { limit, state: Mutex::default() })
    }

    /// Takes one request, if the limit admits it.
    pub(super) fn try_take(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.advance(&self.limit, self.limit.period().tick().at(now)).now;
        let charge = TickCharge { limit: &self.limit, now, by: ClaimId::default(), units: 1 };
        state.admits(&charge) && state.spend(&charge) > 0
    }
}
