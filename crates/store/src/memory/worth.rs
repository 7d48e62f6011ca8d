//! What would be lost with a counter: the order in which counters of a full store are evicted.

use tollgate_core::{Algorithm, Ask, Charge, OnFailure, Reading};

/// The worth of a counter as of its last change, least first: the one with the most room left, then those whose rule
/// refuses on failure (`security`, `quota`), then those that refuse.
///
/// A counter refuses if it has no room for another charge like its last one, or if it has holds. It is considered to
/// refuse until it is stale, also if a part of it has drained since: a counter must not be forgotten too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth(u8);

const REFUSES: u8 = 1 << 7;
const DENIES_ON_FAILURE: u8 = 1 << 6;
/// The used part of the quota takes the other bits.
const USED: u64 = 63;

impl Worth {
    /// For a counter of which nothing is known.
    pub(super) const UNKNOWN: Worth = Worth(REFUSES);

    /// The worth of a counter after a charge.
    #[inline]
    pub(super) fn after(charge: &Charge<'_>, reading: &Reading) -> Worth {
        let quota = charge.limit.quota().max(1);
        let needed = if charge.ask == Ask::Exactly { charge.units.max(1) } else { 1 };
        let refuses = reading.remaining < needed || charge.limit.algorithm() == Algorithm::Concurrency;
        // Both factors are small enough: amounts are below 2^53.
        let left = reading.remaining.min(quota) * USED / quota;
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let denies = charge.on_failure == OnFailure::Deny;
        Worth(flag(refuses, REFUSES) | flag(denies, DENIES_ON_FAILURE) | (USED - left) as u8)
    }

    #[inline(always)]
    pub(super) fn refuses(self) -> bool {
        self.0 & REFUSES != 0
    }

    pub(super) const fn from_bits(bits: u8) -> Worth {
        Worth(bits)
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }
}
