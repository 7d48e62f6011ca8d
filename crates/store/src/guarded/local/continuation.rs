//! Local counters that continue from the store's last reading.

use tollgate_core::algorithm::TickCharge;
use tollgate_core::{Algorithm, ClaimId, CounterState, Limit, Span, Timestamp};

use super::last_readings::LastReading;

/// The number of steps in which units are spread over the past period.
const STEPS: u64 = 8;

/// Counts units that the store has counted, until no more is left here than this server's share of what was left there.
///
/// A reading says how much was used, not when. For buckets and fixed windows that is all there is to know. In a sliding
/// window and in a log, units come back one after the other: they are entered as if they had been taken evenly, over the
/// last period or, after a refusal, since the time that the wait shows.
pub(super) fn continue_from(state: &mut CounterState, last: &LastReading, limit: &Limit, share: &Limit) {
    let left = u128::from(last.remaining) * u128::from(share.quota());
    let left = left.div_ceil(u128::from(limit.quota().max(1))) as u64;
    let used = share.quota().saturating_sub(left);
    match share.algorithm() {
        // Which requests have the slots is not known, so they could not be released.
        Algorithm::Concurrency => return,
        Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog if *state == CounterState::Fresh => {
            let period = share.period().span();
            let first = last.at.max(last.refused_until).before(period).min(last.at);
            let stride = last.at.since(first).as_micros() / STEPS;
            for step in 0..STEPS {
                let at = first.after(Span::from_micros(stride * step));
                spend(state, share, at, used * (step + 1) / STEPS - used * step / STEPS);
            }
        }
        _ => {}
    }
    let now = state.advance(share, share.period().tick().at(last.at)).now;
    let excess = state.available(share, now).unwrap_or(0).saturating_sub(left);
    spend(state, share, last.at, excess);
}

fn spend(state: &mut CounterState, share: &Limit, at: Timestamp, units: u64) {
    if units > 0 {
        let now = state.advance(share, share.period().tick().at(at)).now;
        state.spend(&TickCharge { limit: share, now, by: ClaimId::default(), units });
    }
}
