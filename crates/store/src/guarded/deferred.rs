//! Claims that are sent to the store later.

use tollgate_core::key::HashSecret;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, OwnedCharge, OwnedKey, Settlement,
    Shortcuts, Span, Timestamp,
};

use crate::sharded::OnceRecord;

/// A claim that is sent later. It owns its data, because it outlives its request.
#[derive(Clone, Debug)]
pub(super) struct DeferredClaim {
    pub(super) id: ClaimId,
    pub(super) charges: Vec<OwnedCharge>,
    pub(super) kind: DeferredKind,
    /// The time from which the claim has no effect any more.
    pub(super) until: Timestamp,
}

/// Determines how a deferred claim is sent.
#[derive(Clone, Debug)]
pub(super) enum DeferredKind {
    /// Returns or debits of one location. Sent at most once: if the outcome is unknown, the claim is dropped.
    Plain,
    /// The release of holds that a claim of unknown outcome may have taken, and that nobody else can release. It has no
    /// effect if they are not held, so it may be sent repeatedly.
    Release {
        /// It is not sent before this time.
        not_before: Timestamp,
        /// Whether the store has confirmed it once.
        is_confirmed: bool,
    },
    /// The verdict on an idempotent claim.
    Verdict(Box<DeferredVerdict>),
    /// A settlement. It is idempotent, so it may be sent repeatedly.
    Settlement(Box<DeferredOnce>),
}

/// The verdict on an idempotent claim.
#[derive(Clone, Debug)]
pub(super) struct DeferredVerdict {
    key: OwnedKey,
    body: u64,
    terms: u64,
    passed: bool,
    /// How long the record lasts.
    keep: Span,
    settlement: Settlement,
}

/// The idempotency key of a settlement.
#[derive(Clone, Debug)]
pub(super) struct DeferredOnce {
    key: OwnedKey,
    pub(super) body: u64,
    terms: u64,
    keep: Span,
    /// The name of the whole claim, if this is a part of it that does not live with its record.
    pub(super) part: Option<u128>,
    /// The time since which the store may have settled it without an answer reaching us.
    pub(super) unknown_since: Option<Timestamp>,
}

/// A release is sent again this long after it was confirmed: the claim itself may have been under way on another
/// connection.
const RELEASE_AGAIN: Span = Span::from_secs(1);
/// The pause after a release that was not confirmed. Releases alone, without any other call, do not open a breaker.
const RELEASE_RETRY: Span = Span::from_micros(250_000);

const RELEASE_NOW: DeferredKind = DeferredKind::Release { not_before: Timestamp::from_secs(0), is_confirmed: false };

/// The maximum time for which a record is pending.
const PENDING: Span = Span::from_secs(5);
/// The same on every server, because the names of parts are derived from it.
const NAMES: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x7061_7274_732f_7631);

/// A digest of an idempotency key: the name of the claim.
pub(super) fn claim_name(key: &Key<'_>) -> u128 {
    key.hash(NAMES, key.partition(NAMES))
}

/// A digest of an idempotency key and, for a part of a claim, the name of the whole. Unique in the outbox.
pub(super) fn queue_name(once: &Once<'_>, part: Option<u128>) -> u128 {
    claim_name(&once.key) ^ part.map_or(0, |whole| whole.rotate_left(1))
}

impl DeferredClaim {
    /// Returns and debits of one location.
    pub(super) fn plain(claim: &Claim<'_>, now: Timestamp) -> DeferredClaim {
        DeferredClaim {
            id: claim.id,
            charges: owned_charges(claim),
            kind: DeferredKind::Plain,
            until: now.after(effect(claim)),
        }
    }

    /// The release of the holds that a claim may have taken. The claim returns them.
    pub(super) fn release(claim: &Claim<'_>, now: Timestamp) -> DeferredClaim {
        DeferredClaim { kind: RELEASE_NOW, ..DeferredClaim::plain(claim, now) }
    }

    /// The releases in a claim of unknown outcome: unlike its other charges, they may be sent again.
    pub(super) fn into_release(mut self) -> Option<DeferredClaim> {
        let is_release = |charge: &OwnedCharge| {
            matches!(charge.ask, Ask::Return { .. }) && charge.limit.algorithm() == Algorithm::Concurrency
        };
        self.charges.retain(is_release);
        self.kind = RELEASE_NOW;
        (self.id.is_generated() && !self.charges.is_empty()).then_some(self)
    }

    /// A debit of one counter.
    pub(super) fn debit(id: ClaimId, key: OwnedKey, limit: &Limit, units: u64, now: Timestamp) -> DeferredClaim {
        DeferredClaim {
            id,
            charges: vec![owned_charge(key, limit, Ask::Regardless, units)],
            kind: DeferredKind::Plain,
            until: now.after(limit.period().span()),
        }
    }

    /// The record of a verdict.
    pub(super) fn verdict(id: ClaimId, verdict: DeferredVerdict, now: Timestamp) -> DeferredClaim {
        // A pending record that is not removed expires by itself.
        let until = now.after(verdict.keep.max(PENDING));
        DeferredClaim { id, charges: Vec::new(), kind: DeferredKind::Verdict(Box::new(verdict)), until }
    }

    /// A settlement: a whole claim, or a part of it that does not live with its record.
    pub(super) fn settlement(claim: &Claim<'_>, once: &Once<'_>, part: Option<u128>, now: Timestamp) -> DeferredClaim {
        let Once { key, body, terms, keep } = once;
        let key = OwnedKey::from(key);
        let once = DeferredOnce { key, body: *body, terms: *terms, keep: *keep, part, unknown_since: None };
        let until = now.after(effect(claim).max(*keep));
        DeferredClaim {
            id: claim.id,
            charges: owned_charges(claim),
            kind: DeferredKind::Settlement(Box::new(once)),
            until,
        }
    }

    /// One of the keys; it determines the location.
    pub(super) fn key(&self) -> Option<Key<'_>> {
        match &self.kind {
            DeferredKind::Plain | DeferredKind::Release { .. } => self.charges.first().map(|charge| charge.key.key()),
            DeferredKind::Verdict(verdict) => Some(verdict.key.key()),
            DeferredKind::Settlement(once) => Some(once.key.key()),
        }
    }

    /// The claim to send.
    pub(super) fn claim(&self) -> Claim<'_> {
        let once = match &self.kind {
            DeferredKind::Plain | DeferredKind::Release { .. } => None,
            DeferredKind::Verdict(it) => {
                Some(Once { key: it.key.key(), body: it.body, terms: it.terms, keep: it.keep })
            }
            DeferredKind::Settlement(it) => Some(it.once()),
        };
        Claim { id: self.id, charges: self.charges.iter().map(OwnedCharge::charge).collect(), once, timeout: None }
    }

    /// The handling of the claim's record.
    pub(super) fn record(&self) -> OnceRecord<'_> {
        match &self.kind {
            DeferredKind::Plain | DeferredKind::Release { .. } => OnceRecord::Whole,
            DeferredKind::Verdict(it) => {
                OnceRecord::Verdict { settlement: &it.settlement, passed: it.passed, keep: it.keep }
            }
            DeferredKind::Settlement(it) => it.part.map_or(OnceRecord::Whole, OnceRecord::Part),
        }
    }

    /// Whether the claim may be sent repeatedly.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.kind, DeferredKind::Settlement(_))
    }

    /// The digest of the request, for a settlement.
    pub(super) fn body(&self) -> Option<u64> {
        match &self.kind {
            DeferredKind::Settlement(once) => Some(once.body),
            DeferredKind::Plain | DeferredKind::Release { .. } | DeferredKind::Verdict(_) => None,
        }
    }

    /// Whether the claim has no effect any more or cannot be sent safely any more.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        let lapses = |once: &DeferredOnce| once.unknown_since.is_some_and(|since| now >= since.after(once.keep));
        now >= self.until || matches!(&self.kind, DeferredKind::Settlement(once) if lapses(once))
    }

    /// Whether the claim may be sent now. A settlement of unknown outcome is repeated only while a record of it would
    /// certainly still exist. Half of the record's lifetime is reserved for the time that the request is in transit.
    pub(super) fn may_send(&self, now: Timestamp) -> bool {
        let half = |once: &DeferredOnce| Span::from_micros(once.keep.as_micros() / 2);
        match &self.kind {
            DeferredKind::Settlement(once) => once.unknown_since.is_none_or(|since| now < since.after(half(once))),
            DeferredKind::Release { not_before, .. } => now >= *not_before,
            DeferredKind::Plain | DeferredKind::Verdict(_) => true,
        }
    }

    /// Whether the claim has no other effect if it is sent again.
    pub(super) fn is_release(&self) -> bool {
        matches!(self.kind, DeferredKind::Release { .. })
    }

    /// What is to be sent after the store confirmed the claim.
    pub(super) fn once_more(mut self, now: Timestamp) -> Option<DeferredClaim> {
        match &mut self.kind {
            DeferredKind::Release { not_before, is_confirmed } if !*is_confirmed => {
                (*not_before, *is_confirmed) = (now.after(RELEASE_AGAIN), true);
                Some(self)
            }
            _ => None,
        }
    }

    /// Delays a release that was not confirmed.
    pub(super) fn retry_later(&mut self, now: Timestamp) {
        if let DeferredKind::Release { not_before, .. } = &mut self.kind {
            *not_before = now.after(RELEASE_RETRY);
        }
    }

    /// Records that the outcome is unknown since this time, unless it already was before.
    pub(super) fn note_unknown(&mut self, since: Option<Timestamp>) {
        if let DeferredKind::Settlement(once) = &mut self.kind {
            once.unknown_since = [once.unknown_since, since].into_iter().flatten().min();
        }
    }
}

impl DeferredVerdict {
    pub(super) fn new(once: &Once<'_>, settlement: &Settlement, passed: bool, keep: Span) -> DeferredVerdict {
        let Once { key, body, terms, .. } = once;
        let settlement = settlement.clone();
        DeferredVerdict { key: OwnedKey::from(key), body: *body, terms: *terms, passed, keep, settlement }
    }
}

impl DeferredOnce {
    /// The name in the outbox.
    pub(super) fn queue_name(&self) -> u128 {
        queue_name(&self.once(), self.part)
    }

    fn once(&self) -> Once<'_> {
        Once { key: self.key.key(), body: self.body, terms: self.terms, keep: self.keep }
    }
}

fn owned_charges(claim: &Claim<'_>) -> Vec<OwnedCharge> {
    let owned = |charge: &Charge<'_>| owned_charge(OwnedKey::from(&charge.key), charge.limit, charge.ask, charge.units);
    claim.charges.iter().map(owned).collect()
}

/// A charge that is sent later. Nobody waits for the answer, so its mode and its policy do not matter.
fn owned_charge(key: OwnedKey, limit: &Limit, ask: Ask, units: u64) -> OwnedCharge {
    OwnedCharge {
        key,
        limit: limit.clone(),
        ask,
        units,
        mode: Mode::Enforce,
        on_failure: OnFailure::Deny,
        shortcuts: Shortcuts::Refusals,
    }
}

/// How long the charges of a claim have an effect.
fn effect(claim: &Claim<'_>) -> Span {
    // A sliding window counts the units of the previous period.
    let effect = |charge: &Charge<'_>| Span::from_micros(charge.limit.period().span().as_micros().saturating_mul(2));
    claim.charges.iter().map(effect).max().unwrap_or_default()
}
