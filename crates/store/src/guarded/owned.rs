//! Keys and small claims that outlive their requests.

use smallvec::SmallVec;
use tollgate_core::key::{OwnedValue, Secret};
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

/// Something to tell the store later.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) id: ClaimId,
    pub(super) charges: Vec<Owing>,
    pub(super) deed: Deed,
    /// From when on it makes no difference.
    pub(super) until: Timestamp,
}

/// How it is told.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// What is given back or debited, in one place. It is not told twice: one whose outcome is not known is over.
    Bare,
    /// The verdict on a claim that is settled once.
    Verdict(Box<Pronounced>),
    /// Facts that are settled once, and so may be told again.
    Facts(Box<Named>),
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

/// The name under which facts are settled once.
#[derive(Clone, Debug)]
pub(super) struct Named {
    key: OwnedKey,
    pub(super) body: u64,
    terms: u64,
    keep: Span,
    /// The claim that these facts are a part of, if they do not live with its record.
    pub(super) part: Option<u128>,
    /// Since when it may have been told, without anybody knowing.
    pub(super) unsure: Option<Timestamp>,
}

/// The same on every server: parts of claims are called by it.
const NAMES: Secret = Secret(0x746f_6c6c_6761_7465, 0x7061_7274_732f_7631);

/// A digest of a key, as the name of what is settled under it.
pub(super) fn name(key: &Key<'_>) -> u128 {
    key.whole(NAMES, key.partition(NAMES))
}

/// Tells facts that wait from all others: those of a claim, or those of its part beside this counter.
pub(super) fn name_of(once: &Once<'_>, part: Option<u128>) -> u128 {
    name(&once.key) ^ part.map_or(0, |whole| whole.rotate_left(1))
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
        Errand { id: claim.id, charges: owing(claim), deed: Deed::Bare, until: now.after(lasts(claim)) }
    }

    /// The record of a verdict.
    pub(super) fn pronounce(id: ClaimId, verdict: Pronounced, now: Timestamp) -> Errand {
        let until = now.after(verdict.keep);
        Errand { id, charges: Vec::new(), deed: Deed::Verdict(Box::new(verdict)), until }
    }

    /// Facts that are settled once under this name: all of a claim, or the part of it that does not live with its record.
    pub(super) fn facts(claim: &Claim<'_>, once: &Once<'_>, part: Option<u128>, now: Timestamp) -> Errand {
        let Once { key, body, terms, keep } = once;
        let named = Named { key: OwnedKey::of(key), body: *body, terms: *terms, keep: *keep, part, unsure: None };
        let until = now.after(lasts(claim).max(*keep));
        Errand { id: claim.id, charges: owing(claim), deed: Deed::Facts(Box::new(named)), until }
    }

    /// One of the keys, by which its place is found.
    pub(super) fn key(&self) -> Option<Key<'_>> {
        match &self.deed {
            Deed::Bare => self.charges.first().map(|charge| charge.key.key()),
            Deed::Verdict(verdict) => Some(verdict.key.key()),
            Deed::Facts(named) => Some(named.key.key()),
        }
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
        let once = match &self.deed {
            Deed::Bare => None,
            Deed::Verdict(it) => Some(Once { key: it.key.key(), body: it.body, terms: it.terms, keep: it.keep }),
            Deed::Facts(it) => Some(it.once()),
        };
        Claim { id: self.id, charges: charges.collect(), once, patience: None }
    }

    /// What becomes of its record.
    pub(super) fn record(&self) -> Record<'_> {
        match &self.deed {
            Deed::Bare => Record::Whole,
            Deed::Verdict(it) => Record::Verdict { settlement: &it.settlement, passed: it.passed, keep: it.keep },
            Deed::Facts(it) => it.part.map_or(Record::Whole, Record::Part),
        }
    }

    /// Whether it may be told again.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.deed, Deed::Facts(_))
    }

    /// What is told, for facts.
    pub(super) fn body(&self) -> Option<u64> {
        match &self.deed {
            Deed::Facts(named) => Some(named.body),
            Deed::Bare | Deed::Verdict(_) => None,
        }
    }

    /// Whether it makes no difference any more, or can't be told safely.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let lapses = |named: &Named| named.unsure.is_some_and(|since| now >= since.after(named.keep));
        now >= self.until || matches!(&self.deed, Deed::Facts(named) if lapses(named))
    }

    /// Whether it may be told now. What may have been told is told again only while a record of it would surely still be there;
    /// half of the time that records are kept is left for what lies on its way.
    pub(super) fn may_be_told(&self, now: Timestamp) -> bool {
        let half = |named: &Named| Span::from_micros(named.keep.as_micros() / 2);
        match &self.deed {
            Deed::Facts(named) => named.unsure.is_none_or(|since| now < since.after(half(named))),
            Deed::Bare | Deed::Verdict(_) => true,
        }
    }

    /// From now on nobody knows whether it was told, if that was so since `since`.
    pub(super) fn doubt(&mut self, since: Option<Timestamp>) {
        if let Deed::Facts(named) = &mut self.deed {
            named.unsure = [named.unsure, since].into_iter().flatten().min();
        }
    }
}

impl Pronounced {
    /// The verdict on a claim with this name.
    pub(super) fn of(once: &Once<'_>, settlement: &Settlement, passed: bool, keep: Span) -> Pronounced {
        let Once { key, body, terms, .. } = once;
        let settlement = settlement.clone();
        Pronounced { key: OwnedKey::of(key), body: *body, terms: *terms, passed, keep, settlement }
    }
}

impl Named {
    /// Tells it from all others that wait.
    pub(super) fn name(&self) -> u128 {
        name_of(&self.once(), self.part)
    }

    fn once(&self) -> Once<'_> {
        Once { key: self.key.key(), body: self.body, terms: self.terms, keep: self.keep }
    }
}

fn owing(claim: &Claim<'_>) -> Vec<Owing> {
    let owing = claim.charges.iter().map(|charge| Owing {
        key: OwnedKey::of(&charge.key),
        limit: charge.limit.clone(),
        ask: charge.ask,
        units: charge.units,
    });
    owing.collect()
}

/// For how long it makes a difference what a claim asks for.
fn lasts(claim: &Claim<'_>) -> Span {
    // A sliding window counts what was taken in the period before.
    let lasts = |charge: &Charge<'_>| Span::from_micros(charge.limit.period().span().as_micros().saturating_mul(2));
    claim.charges.iter().map(lasts).max().unwrap_or_default()
}
