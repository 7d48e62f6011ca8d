//! Calls to the store for which no request waits: units taken ahead of demand, units given back, and units
//! that were spent in advance.

use smallvec::smallvec;
use tollgate_core::{Ask, Claim, ClaimId, OwnedCharge};

use super::pool::Generation;

/// A call to make.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The pool that the answer is for.
    pub(super) pool: u128,
    pub(super) charge: OwnedCharge,
    /// Units to take with it for the pool.
    pub(super) refill: Option<OwnedCharge>,
    /// That of the pool, if units are taken for it.
    pub(super) generation: Generation,
}

impl Errand {
    /// Gives back units of a pool.
    pub(super) fn give_back(pool: u128, charge: OwnedCharge) -> Errand {
        Errand { pool, charge, refill: None, generation: Generation::default() }
    }

    /// Takes units for a pool.
    pub(super) fn refill(pool: u128, charge: OwnedCharge, generation: Generation) -> Errand {
        Errand { pool, charge, refill: None, generation }
    }

    /// The claim to settle.
    pub fn claim(&self, id: ClaimId) -> Claim<'_> {
        let mut charges = smallvec![self.charge.charge()];
        charges.extend(self.refill.as_ref().map(OwnedCharge::charge));
        Claim { id, charges, once: None, timeout: None }
    }

    /// Whether it has the store count units that requests spent in advance.
    pub fn is_debit(&self) -> bool {
        self.charge.ask == Ask::Regardless
    }

    /// Whether it takes units, rather than giving them back.
    pub fn is_refill(&self) -> bool {
        self.charge.ask == Ask::UpTo
    }
}
