//! How the debits of other regions are doing, and what that means for limits.

use tollgate_core::{GlobalTerms, Limit, RegionLink, RegionShare, Settlement, Span};

/// The state of one region, or the worst of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkLevel {
    #[default]
    Together,
    /// The limit is lowered by so many of [`STEPS`] towards the region's equal share.
    Lagging(u8),
    Apart,
}

/// Debits that are older than this are late: limits are lowered …
const LAGGING_AFTER: Span = Span::from_micros(500_000);
/// … step by step until this age, from which on the regions are apart.
pub(super) const APART_AFTER: Span = Span::from_secs(2);
/// The number of steps between the two.
const STEPS: u8 = 6;
/// The code of [`LinkLevel::Apart`].
const APART: u8 = STEPS + 1;

impl LinkLevel {
    /// The state of a region whose oldest debit has this age, and whose store can be reached or not.
    ///
    /// Regions that were apart are together again when the lag is over, and not lowered in between: a limit that counted on
    /// alone would be lowered for no reason, since the other regions hear of it within moments.
    pub(super) fn next(self, oldest: Span, is_reachable: bool) -> LinkLevel {
        if !is_reachable || oldest > APART_AFTER {
            return LinkLevel::Apart;
        }
        let Some(late) = oldest.as_micros().checked_sub(LAGGING_AFTER.as_micros()).filter(|late| *late > 0) else {
            return LinkLevel::Together;
        };
        if self == LinkLevel::Apart {
            return LinkLevel::Apart;
        }
        let range = APART_AFTER.as_micros() - LAGGING_AFTER.as_micros();
        LinkLevel::Lagging((late * u64::from(STEPS)).div_ceil(range).clamp(1, u64::from(STEPS)) as u8)
    }

    /// The part of a limit that applies if it is lowered. `regions` is their number, this one included.
    fn share(self, regions: u16) -> RegionShare {
        let steps = u16::from(STEPS);
        match self {
            LinkLevel::Together => RegionShare::WHOLE,
            LinkLevel::Lagging(step) => {
                let whole = regions * steps;
                RegionShare { parts: whole - u16::from(step.min(STEPS)) * (regions - 1), whole }
            }
            LinkLevel::Apart => RegionShare { parts: 1, whole: regions },
        }
    }

    /// The limit that applies instead, if it is another.
    pub(super) fn limit(self, limit: &Limit, terms: GlobalTerms, regions: u16) -> Option<Limit> {
        self.link().lowers(terms).then(|| self.share(regions).of(limit))
    }

    /// Says in an answer that limits may have been lowered, and to what.
    pub(super) fn note(self, settlement: &mut Settlement, regions: u16) {
        (settlement.link, settlement.lowered_to) = (self.link(), self.share(regions));
    }

    pub(super) fn link(self) -> RegionLink {
        match self {
            LinkLevel::Together => RegionLink::Together,
            LinkLevel::Lagging(_) => RegionLink::Lagging,
            LinkLevel::Apart => RegionLink::Apart,
        }
    }

    /// For an atomic.
    pub(super) fn code(self) -> u8 {
        match self {
            LinkLevel::Together => 0,
            LinkLevel::Lagging(step) => step,
            LinkLevel::Apart => APART,
        }
    }

    pub(super) fn from_code(code: u8) -> LinkLevel {
        match code {
            0 => LinkLevel::Together,
            step @ 1..=STEPS => LinkLevel::Lagging(step),
            _ => LinkLevel::Apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Algorithm, Apart, Period};

    use super::*;

    fn millis(millis: u64) -> Span {
        Span::from_micros(millis * 1_000)
    }

    fn quota(state: LinkLevel, apart: Apart, regions: u16) -> u64 {
        let period = Period::fixed(Span::from_secs(60)).unwrap();
        let limit = Limit::new(900, period, Algorithm::FixedWindow).unwrap();
        let terms = GlobalTerms { apart, ..GlobalTerms::default() };
        state.limit(&limit, terms, regions).unwrap_or(limit).quota()
    }

    #[test]
    fn lag_lowers_limits_step_by_step_to_the_share() {
        let mut quotas = Vec::new();
        let mut state = LinkLevel::default();
        for at in (0..=2_000).step_by(50) {
            state = state.next(millis(at), true);
            quotas.push(quota(state, Apart::Alone, 3));
            assert_eq!(quotas.last(), Some(&quota(state, Apart::Share, 3)));
            assert_eq!(LinkLevel::from_code(state.code()), state);
        }
        quotas.dedup();
        assert_eq!(quotas, [900, 800, 700, 600, 500, 400, 300]);
        let apart = state.next(millis(2_001), true);
        assert_eq!((quota(apart, Apart::Alone, 3), quota(apart, Apart::Share, 3)), (900, 300));
        assert_eq!(LinkLevel::from_code(apart.code()), apart);
    }

    #[test]
    fn regions_stay_apart_until_the_lag_is_over() {
        let mut state = LinkLevel::default().next(Span::ZERO, false);
        for at in [30_000, 2_000, 600, 501] {
            state = state.next(millis(at), true);
            assert_eq!(state.link(), RegionLink::Apart, "{at}");
        }
        assert_eq!(state.next(millis(500), true), LinkLevel::Together);
        assert_eq!(LinkLevel::Together.next(millis(501), true), LinkLevel::Lagging(1));
        assert_eq!(LinkLevel::Lagging(3).next(millis(100), true), LinkLevel::Together);
    }

    #[test]
    fn no_number_of_regions_overflows() {
        for regions in 2..=16 {
            for state in
                [LinkLevel::Lagging(1), LinkLevel::Lagging(STEPS), LinkLevel::Lagging(u8::MAX), LinkLevel::Apart]
            {
                assert!((900 / u64::from(regions)..=900).contains(&quota(state, Apart::Share, regions)));
            }
        }
    }
}
