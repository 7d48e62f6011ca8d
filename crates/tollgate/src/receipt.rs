//! Receipts: what a claim took, to be settled when its request has ended.

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
use tollgate_rules::{Domain, MatchedRules};

#[cfg(feature = "receipts")]
pub use keys::{KeyError, ReceiptError, ReceiptKeys};

/// What a claim took, when, and from which counters. Any server with the same store and rules can settle it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: ClaimId,
    /// The time of the claim, by the store's clock.
    pub(crate) taken_at: Timestamp,
    /// How long the receipt is valid.
    pub(crate) hold: Span,
    /// The caller in whose partition the record of the settlement lives. The receipt carries it, because the rules by
    /// which it is settled may be others. A receipt of an earlier version has none.
    pub(crate) caller: Option<OwnedValue>,
    /// The names of the regions with the counters; the first is where it was taken, and where its settlement is recorded.
    /// Empty if there is one region.
    pub(crate) regions: Vec<Box<str>>,
    pub(crate) taken: Vec<TakenCharge>,
}

/// What was taken from one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakenCharge {
    /// The short digest of the counter's scope, by which the rules find the counter again.
    pub(crate) scope: u64,
    pub(crate) values: SmallVec<[OwnedValue; 2]>,
    /// The amount of the limit, by which the rules find the caller's tier again.
    pub(crate) amount: u64,
    pub(crate) units: u64,
    pub(crate) on_end: OnEnd,
    /// The index of its region in the receipt's.
    pub(crate) region: u8,
}

/// How the charge is settled when the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnEnd {
    /// A slot, which is released.
    Release,
    /// Units, which may be given back or added to.
    Units {
        /// Whether the real cost replaces them.
        settle: bool,
        /// Whether they are given back if the request failed.
        refund: bool,
    },
}

impl Receipt {
    /// The receipt for an allowed claim.
    pub(crate) fn from_claim(
        claim: &Claim<'_>,
        matched: &MatchedRules,
        domain: &Domain,
        settlement: &Settlement,
    ) -> Receipt {
        let names = domain.regions().all();
        let mut receipt = Receipt {
            id: claim.id,
            taken_at: settlement.at,
            hold: Span::ZERO,
            caller: None,
            regions: names.map(|names| names.here().into()).into_iter().collect(),
            taken: Vec::new(),
        };
        for ((charge, applied), reading) in claim.charges.iter().zip(&matched.applied).zip(&settlement.readings) {
            let Some(rule) = domain.rule(applied).filter(|rule| reading.taken > 0 && rule.needs_receipt(charge.limit))
            else {
                continue;
            };
            let EndTerms { settle, refund, hold, .. } = rule.ending();
            receipt.hold = receipt.hold.max(hold);
            receipt.caller = receipt.caller.or_else(|| charge.key.caller().map(OwnedValue::from));
            let region = names.and_then(|names| names.name(charge.key.region()));
            let region = region.map_or(0, |name| receipt.region_index(name));
            receipt.taken.push(TakenCharge {
                region,
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

    /// The index of a region, which is added if it is new. There are at most as many as [`RegionNames::MAX`].
    ///
    /// [`RegionNames::MAX`]: tollgate_core::RegionNames::MAX
    fn region_index(&mut self, name: &str) -> u8 {
        let index = self.regions.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.regions.push(name.into());
            self.regions.len() - 1
        });
        u8::try_from(index).unwrap_or(0)
    }

    /// The region in which it was taken, if there are several.
    pub fn region(&self) -> Option<&str> {
        self.regions.first().map(|name| &**name)
    }

    /// The claim that took it.
    pub fn claim(&self) -> ClaimId {
        self.id
    }

    /// How long the receipt is valid, from when it was issued or last extended. After that its slots are free, and the
    /// units that it reserved stay spent.
    pub fn hold(&self) -> Span {
        self.hold
    }

    /// Whether there is nothing to settle.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}
