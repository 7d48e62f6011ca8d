//! Requests in flight of tiers with a reserve.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::settings::ReserveRule;
use crate::padded::Padded;
use crate::reserves::{MAX_RESERVES, TierReserves};

/// What is reserved for tiers, and how much of it is in use.
pub(super) struct Reserved {
    shares: TierReserves,
    rule: ReserveRule,
    /// How many requests are reserved for each tier at the current limit. Only the end of a window writes.
    amounts: Padded<[AtomicU32; MAX_RESERVES]>,
    in_flight: Padded<[AtomicU32; MAX_RESERVES]>,
    /// The last is of those without a reserve.
    refused: Padded<[AtomicU64; MAX_RESERVES + 1]>,
}

/// The number of a tier with a reserve, or of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder(u8);

/// What the class of a request allows at the current limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassPart {
    /// The whole limit.
    pub(super) limit: u32,
    /// The requests in flight up to which the class is admitted.
    pub(super) ceiling: u32,
    /// The same as a share.
    pub(super) share: f64,
}

impl Holder {
    /// Callers without a reserve.
    pub(super) const SHARED: Holder = Holder(MAX_RESERVES as u8);

    /// A number without a reserve is of the others.
    pub(super) fn new(reserve: Option<usize>) -> Holder {
        reserve.filter(|number| *number < MAX_RESERVES).map_or(Holder::SHARED, |number| Holder(number as u8))
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Reserved {
    pub(super) fn new(shares: TierReserves, rule: ReserveRule, limit: f64) -> Reserved {
        let reserved = Reserved {
            shares,
            rule,
            amounts: Padded(Default::default()),
            in_flight: Padded(Default::default()),
            refused: Padded(Default::default()),
        };
        reserved.install(limit);
        reserved
    }

    /// Takes another limit into account.
    pub(super) fn install(&self, limit: f64) {
        for (amount, share) in self.amounts.0.iter().zip(self.shares.shares()) {
            let reserved = match self.rule {
                ReserveRule::HoldBack => (share * limit).round(),
                // A product of decimals may be above a whole number by rounding.
                ReserveRule::AboveLimit => (share * limit - 1e-9).ceil().max(1.0),
            };
            amount.store(reserved as u32, Ordering::Relaxed);
        }
    }

    /// How many requests may be in flight when one is admitted, itself included.
    #[inline]
    pub(super) fn ceiling(&self, holder: Holder, class: ClassPart) -> u32 {
        let own = match self.amounts.0.get(holder.index()) {
            // Within a reserve, classes have their shares of it.
            Some(amount) => (f64::from(amount.load(Ordering::Relaxed)) * class.share).ceil() as u32,
            None => 0,
        };
        let is_within = own > 0 && self.in_flight(holder) < own;
        match self.rule {
            ReserveRule::AboveLimit if is_within => u32::MAX,
            ReserveRule::AboveLimit => class.ceiling,
            ReserveRule::HoldBack => {
                let room = class.limit.saturating_sub(self.held_for_others(holder));
                // One request is always possible.
                if is_within { room.max(1) } else { room.min(class.ceiling).max(1) }
            }
        }
    }

    /// What other tiers have reserved and do not use.
    #[inline]
    fn held_for_others(&self, holder: Holder) -> u32 {
        let tiers = self.amounts.0.iter().zip(&self.in_flight.0).take(self.shares.shares().len()).enumerate();
        let unused = tiers.filter(|(number, _)| *number != holder.index()).map(|(_, (amount, in_flight))| {
            amount.load(Ordering::Relaxed).saturating_sub(in_flight.load(Ordering::Relaxed))
        });
        unused.fold(0, u32::saturating_add)
    }

    #[inline]
    fn in_flight(&self, holder: Holder) -> u32 {
        self.in_flight.0.get(holder.index()).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// A request begins. It is in flight already, so that what is reserved for its tier is at most seen as too much.
    #[inline]
    pub(super) fn begin(&self, holder: Holder) {
        if let Some(count) = self.in_flight.0.get(holder.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request ends. It is still in flight, for the same reason.
    #[inline]
    pub(super) fn end(&self, holder: Holder) {
        if let Some(count) = self.in_flight.0.get(holder.index()) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn refuse(&self, holder: Holder) {
        if let Some(count) = self.refused.0.get(holder.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The numbers of each tier with a reserve, and of the others.
    pub(super) fn status(&self) -> Vec<ReserveStatus> {
        let shares = self.shares.shares().iter().enumerate();
        let tiers = shares.map(|(number, share)| (Holder::new(Some(number)), Some(*share)));
        let all = tiers.chain([(Holder::SHARED, None)]).map(|(holder, share)| ReserveStatus {
            share,
            reserved: self.amounts.0.get(holder.index()).map_or(0, |amount| amount.load(Ordering::Relaxed)),
            in_flight: self.in_flight(holder),
            refused: self.refused.0.get(holder.index()).map_or(0, |count| count.load(Ordering::Relaxed)),
        });
        all.collect()
    }
}

/// A tier with a reserve, or all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReserveStatus {
    /// The reserved share of the limit; none for those without one.
    pub share: Option<f64>,
    /// The same in requests, at the current limit.
    pub reserved: u32,
    /// Requests in flight; 0 for those without a reserve, who are not counted apart.
    pub in_flight: u32,
    /// Requests that were refused, or would have been in mode `shadow`.
    pub refused: u64,
}
