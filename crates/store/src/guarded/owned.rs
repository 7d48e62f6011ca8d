//! Keys and small claims that outlive their requests.

use smallvec::SmallVec;
use tollgate_core::key::OwnedValue;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Scope, Settlement, Span, Timestamp,
};

use crate::sharded::Record;

/// A key that borrows nothing.
#[derive(Clone, Debug)]
pub(super) struct OwnedKey {
    scope: Scope,
    values: SmallVec<[OwnedValue; 2]>,
}

/// Something to tell a place of the store later: all of its keys live there.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) id: ClaimId,
    pub(super) charges: Vec<Owing>,
    pub(super) verdict: Option<Box<Pronounced>>,
    /// From when on it makes no difference.
    pub(super) until: Timestamp,
}

/// What is given back or debited.
#[derive(Clone, Debug)]
pub(super) struct Owing {
    pub(super) key: OwnedKey,
    pub(super) limit: Limit,
    pub(super) ask: Ask,
    pub(super) units: u64,
}

/// The verdict on a claim that is settled once.
#[derive(Clone, Debug)]
pub(super) struct Pronounced {
    key: OwnedKey,
    body: u64,
    terms: u64,
    passed: bool,
    /// How long the record of it lasts.
    keep: Span,
    settlement: Settlement,
}

impl OwnedKey {
    pub(super) fn of(key: &Key<'_>) -> OwnedKey {
        OwnedKey {
            scope: key.scope().clone(),
            values: key.values().iter().map(|value| OwnedValue::from(*value)).collect(),
        }
    }

    pub(super) fn key(&self) -> Key<'_> {
        Key::new(&self.scope, self.values.iter().map(OwnedValue::value).collect())
    }
}

impl Errand {
    /// What a claim, which is to be sent in one piece, asks for.
    pub(super) fn of(claim: &Claim<'_>, now: Timestamp) -> Errand {
        let charges = claim.charges.iter().map(|charge| Owing {
            key: OwnedKey::of(&charge.key),
            limit: charge.limit.clone(),
            ask: charge.ask,
            units: charge.units,
        });
        // A sliding window counts what was taken in the period before.
        let lasts = |charge: &Charge<'_>| Span::from_micros(charge.limit.period().span().as_micros().saturating_mul(2));
        let longest = claim.charges.iter().map(lasts).max().unwrap_or_default();
        Errand { id: claim.id, charges: charges.collect(), verdict: None, until: now.after(longest) }
    }

    /// The record of a verdict.
    pub(super) fn pronounce(id: ClaimId, verdict: Pronounced, now: Timestamp) -> Errand {
        Errand { id, charges: Vec::new(), until: now.after(verdict.keep), verdict: Some(Box::new(verdict)) }
    }

    /// One of the keys, by which its place is found.
    pub(super) fn key(&self) -> Option<Key<'_>> {
        let verdict = self.verdict.as_ref().map(|verdict| &verdict.key);
        verdict.or(self.charges.first().map(|charge| &charge.key)).map(OwnedKey::key)
    }

    /// The claim that does it.
    pub(super) fn claim(&self) -> Claim<'_> {
        let charges = self.charges.iter().map(|owing| Charge {
            key: owing.key.key(),
            limit: &owing.limit,
            ask: owing.ask,
            units: owing.units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            strict: false,
        });
        let once = self.verdict.as_ref().map(|verdict| Once {
            key: verdict.key.key(),
            body: verdict.body,
            terms: verdict.terms,
            keep: verdict.keep,
        });
        Claim { id: self.id, charges: charges.collect(), once, patience: None }
    }
}

impl Pronounced {
    /// The verdict on a claim with this name.
    pub(super) fn of(once: &Once<'_>, settlement: &Settlement, passed: bool, keep: Span) -> Pronounced {
        let Once { key, body, terms, .. } = once;
        let settlement = settlement.clone();
        Pronounced { key: OwnedKey::of(key), body: *body, terms: *terms, passed, keep, settlement }
    }

    /// What becomes of its record.
    pub(super) fn record(&self) -> Record<'_> {
        Record::Verdict { settlement: &self.settlement, passed: self.passed, keep: self.keep }
    }
}
