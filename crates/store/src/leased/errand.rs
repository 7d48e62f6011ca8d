//! Calls to the store for which no request waits: units taken ahead of demand, and units given back.

use smallvec::smallvec;
use tollgate_core::{Ask, Claim, ClaimId, OwnedCharge};

/// A call to make.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The pool that the answer is for.
    pub(super) pool: u128,
    pub(super) charge: OwnedCharge,
}

impl Errand {
    /// The claim to settle.
    pub fn claim(&self, id: ClaimId) -> Claim<'_> {
        Claim { id, charges: smallvec![self.charge.charge()], once: None, timeout: None }
    }

    /// Whether it takes units, rather than giving them back.
    pub fn is_refill(&self) -> bool {
        self.charge.ask == Ask::UpTo
    }
}
