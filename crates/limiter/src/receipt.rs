//! What a claim took that is to be settled when its request has ended.

#[cfg(any(feature = "receipts", test))]
mod bytes;
#[cfg(feature = "receipts")]
mod keys;
#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use tollgate_core::key::OwnedValue;
use tollgate_core::{Algorithm, Claim, ClaimId, Settlement, Span, Timestamp};
use tollgate_rules::model::EndTerms;
use tollgate_rules::{Domain, Matched};

#[cfg(feature = "receipts")]
pub use keys::{KeyError, ReceiptError, ReceiptKeys};

/// What a claim took, when, and from which counters: all that is needed to settle it, on any server with the same store and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: ClaimId,
    /// By the store's clock.
    pub(crate) taken_at: Timestamp,
    /// How long it may be settled.
    pub(crate) hold: Span,
    pub(crate) taken: Vec<Taken>,
}

/// What was taken from one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The short digest of the counter's scope, by which rules find it again.
    pub(crate) scope: u64,
    pub(crate) values: SmallVec<[OwnedValue; 2]>,
    /// The amount of the limit, by which that of the caller's tier is found.
    pub(crate) amount: u64,
    pub(crate) units: u64,
    pub(crate) on_end: OnEnd,
}

/// What becomes of it when the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnEnd {
    /// A hold, which is released.
    Release,
    /// Units that may be given back or added to.
    Units {
        /// The real cost takes their place.
        settle: bool,
        /// They are given back if the request failed.
        refund: bool,
    },
}

impl Receipt {
    /// The receipt for a claim that passed.
    pub(crate) fn of(claim: &Claim<'_>, matched: &Matched, domain: &Domain, settlement: &Settlement) -> Receipt {
        let mut receipt = Receipt { id: claim.id, taken_at: settlement.at, hold: Span::ZERO, taken: Vec::new() };
        for ((charge, applied), reading) in claim.charges.iter().zip(&matched.applied).zip(&settlement.readings) {
            let Some(rule) = domain.rule(applied).filter(|rule| reading.taken > 0 && rule.needs_receipt(charge.limit))
            else {
                continue;
            };
            let EndTerms { settle, refund, hold, .. } = rule.ending();
            receipt.hold = receipt.hold.max(hold);
            receipt.taken.push(Taken {
                scope: charge.key.scope().short(),
                values: charge.key.values().iter().map(|value| OwnedValue::from(*value)).collect(),
                amount: charge.limit.amount(),
                units: reading.taken,
                on_end: match charge.limit.algorithm() {
                    Algorithm::Concurrency => OnEnd::Release,
                    _ => OnEnd::Units { settle, refund },
                },
            });
        }
        if receipt.taken.is_empty() {
            receipt.hold = EndTerms::HOLD;
        }
        receipt
    }

    /// The claim that took it.
    pub fn claim(&self) -> ClaimId {
        self.id
    }

    /// How long it may be settled, from when it was made or was last told that the request is running. Holds end by then, and what
    /// was reserved stays spent.
    pub fn hold(&self) -> Span {
        self.hold
    }

    /// Whether nothing was taken that would have to be settled.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether a slot is held, which ends by itself unless it is told that the request is running.
    pub fn has_holds(&self) -> bool {
        self.taken.iter().any(|taken| taken.on_end == OnEnd::Release)
    }
}
