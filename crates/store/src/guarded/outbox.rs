//! The outbox: deferred claims that wait until they can be sent. Bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Once;

use super::deferred::{self, DeferredClaim, DeferredKind};

/// The maximum number of queued claims. Further ones are dropped.
const MAX_QUEUED: usize = 10_000;

/// The queue of deferred claims.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queues: Mutex<Queues>,
    /// The number of queued settlements. Usually 0, and then the lock is not needed.
    settlements: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queues {
    /// Claims that are sent at most once.
    others: VecDeque<DeferredClaim>,
    /// Settlements by name, until they are delivered. Repeating one while the store is unavailable adds nothing.
    settlements: HashMap<u128, QueuedSettlement, foldhash::fast::RandomState>,
    /// The names of the settlements that are not in flight, each once, in the order in which they are sent.
    order: VecDeque<u128>,
}

#[derive(Debug)]
struct QueuedSettlement {
    claim: DeferredClaim,
    in_flight: bool,
}

/// The result of pushing a claim to the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    /// The claim is queued, or the same claim already was.
    Queued,
    /// A different settlement is queued under the same name.
    Conflict,
    /// The outbox is full.
    Dropped,
}

impl Outbox {
    pub(super) fn push(&self, claim: DeferredClaim) -> PushOutcome {
        let settlement = match &claim.kind {
            DeferredKind::Settlement(once) => Some((once.queue_name(), once.body, once.unknown_since)),
            DeferredKind::Plain | DeferredKind::Release { .. } | DeferredKind::Verdict(_) => None,
        };
        let mut queues = self.queues();
        if let Some((name, body, unknown_since)) = settlement
            && let Some(queued) = queues.settlements.get_mut(&name)
        {
            if queued.claim.body() != Some(body) {
                return PushOutcome::Conflict;
            }
            queued.claim.note_unknown(unknown_since);
            if std::mem::take(&mut queued.in_flight) {
                queues.order.push_back(name);
            }
            return PushOutcome::Queued;
        }
        if queues.len() >= MAX_QUEUED {
            self.count_dropped();
            return PushOutcome::Dropped;
        }
        match settlement {
            Some((name, ..)) => {
                queues.settlements.insert(name, QueuedSettlement { claim, in_flight: false });
                queues.order.push_back(name);
                self.settlements.store(queues.settlements.len(), Ordering::Release);
            }
            None => queues.others.push_back(claim),
        }
        PushOutcome::Queued
    }

    /// Whether a different settlement is queued under this name.
    pub(super) fn has_conflict(&self, once: &Once<'_>) -> bool {
        if self.settlements.load(Ordering::Acquire) == 0 {
            return false;
        }
        let name = deferred::queue_name(once, None);
        self.queues().settlements.get(&name).is_some_and(|queued| queued.claim.body() != Some(once.body))
    }

    /// Removes a settlement that was delivered.
    pub(super) fn remove(&self, once: &Once<'_>, part: Option<u128>) {
        if self.settlements.load(Ordering::Acquire) > 0 {
            self.remove_name(deferred::queue_name(once, part));
        }
    }

    /// Removes a settlement that was taken from the outbox, whether it was delivered or has expired.
    pub(super) fn remove_claim(&self, claim: &DeferredClaim) {
        if let DeferredKind::Settlement(once) = &claim.kind {
            self.remove_name(once.queue_name());
        }
    }

    fn remove_name(&self, name: u128) {
        let mut queues = self.queues();
        if let Some(queued) = queues.settlements.remove(&name) {
            if !queued.in_flight {
                queues.order.retain(|other| *other != name);
            }
            self.settlements.store(queues.settlements.len(), Ordering::Release);
        }
    }

    /// Takes up to `max` claims to send, from both queues, so that neither blocks the other. Settlements stay in the
    /// outbox, marked as in flight, until they are removed; a sender that could not deliver one pushes it again.
    pub(super) fn take(&self, max: usize) -> Vec<DeferredClaim> {
        let mut queues = self.queues();
        let settlements = queues.order.len().min((max / 2).max(max.saturating_sub(queues.others.len())));
        let others = queues.others.len().min(max - settlements);
        let names: Vec<u128> = queues.order.drain(..settlements).collect();
        let mut taken = Vec::with_capacity(settlements + others);
        for name in names {
            if let Some(queued) = queues.settlements.get_mut(&name) {
                queued.in_flight = true;
                taken.push(queued.claim.clone());
            }
        }
        taken.extend(queues.others.drain(..others));
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.queues().len()
    }

    pub(super) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn len(&self) -> usize {
        self.others.len() + self.settlements.len()
    }
}

#[cfg(test)]
mod tests {
    use smallvec::{SmallVec, smallvec};
    use tollgate_core::key::Home;
    use tollgate_core::{Claim, ClaimId, Key, Once, Scope, Span, Timestamp, Value};

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);
    const KEEP: Span = Span::from_secs(60);

    fn plain(id: u128) -> DeferredClaim {
        DeferredClaim { id: ClaimId(id), charges: Vec::new(), kind: DeferredKind::Plain, until: Timestamp::MAX }
    }

    fn settlement(name: &str, body: u64, unknown_since: Option<Timestamp>) -> DeferredClaim {
        let scope = Scope::for_records("d", "records", Home::Own);
        let once = Once { key: Key::new(&scope, smallvec![Value::Text(name)]), body, terms: 0, keep: KEEP };
        let claim = Claim { id: ClaimId(1), charges: SmallVec::new(), once: None, timeout: None };
        let mut deferred = DeferredClaim::settlement(&claim, &once, None, START);
        deferred.note_unknown(unknown_since);
        deferred
    }

    #[test]
    fn what_comes_past_the_bound_is_dropped_and_counted() {
        let outbox = Outbox::default();
        for id in 0..MAX_QUEUED as u128 + 3 {
            outbox.push(plain(id));
        }
        assert_eq!((outbox.len(), outbox.dropped()), (MAX_QUEUED, 3));
        assert_eq!((outbox.push(settlement("a", 1, None)), outbox.dropped()), (PushOutcome::Dropped, 4));
        let first: Vec<u128> = outbox.take(2).iter().map(|claim| claim.id.0).collect();
        assert_eq!((first, outbox.len()), (vec![0, 1], MAX_QUEUED - 2));
        assert_eq!(outbox.take(usize::MAX).len(), MAX_QUEUED - 2);
    }

    #[test]
    fn the_same_settlement_is_queued_once() {
        let outbox = Outbox::default();
        assert_eq!(outbox.push(settlement("a", 1, None)), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 1, Some(START.after(KEEP)))), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 1, Some(START))), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 2, None)), PushOutcome::Conflict);
        assert_eq!(outbox.push(settlement("b", 2, None)), PushOutcome::Queued);
        assert_eq!((outbox.len(), outbox.dropped()), (2, 0));
        let taken = outbox.take(10);
        let sent: Vec<_> = taken
            .iter()
            .map(|claim| match &claim.kind {
                DeferredKind::Settlement(once) => (once.body, once.unknown_since),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sent, [(1, Some(START)), (2, None)], "the earliest unknown outcome counts");
        // In flight they stay in the outbox, but are not sent again.
        assert_eq!((outbox.len(), outbox.take(10).len()), (2, 0));
        assert_eq!(outbox.push(settlement("a", 2, None)), PushOutcome::Conflict);
        assert_eq!(outbox.push(settlement("b", 2, None)), PushOutcome::Queued, "it could not be delivered");
        assert_eq!((outbox.len(), outbox.take(10).len()), (2, 1));
    }

    #[test]
    fn delivered_settlements_are_removed() {
        let outbox = Outbox::default();
        let scope = Scope::for_records("d", "records", Home::Own);
        let once =
            |name, body| Once { key: Key::new(&scope, smallvec![Value::Text(name)]), body, terms: 0, keep: KEEP };
        assert!(!outbox.has_conflict(&once("a", 1)));
        for name in ["a", "b", "c"] {
            outbox.push(settlement(name, 1, None));
        }
        assert!(!outbox.has_conflict(&once("a", 1)) && outbox.has_conflict(&once("a", 2)));
        outbox.remove(&once("b", 1), Some(7));
        assert_eq!(outbox.len(), 3, "a part is not the whole");
        outbox.remove(&once("b", 1), None);
        outbox.remove(&once("d", 1), None);
        assert!(!outbox.has_conflict(&once("b", 2)));
        assert_eq!((outbox.take(1).len(), outbox.len()), (1, 2));
        outbox.remove(&once("a", 1), None);
        outbox.remove(&once("c", 1), None);
        assert!(!outbox.has_conflict(&once("a", 2)));
        assert_eq!((outbox.take(10).len(), outbox.len()), (0, 0));
    }

    #[test]
    fn neither_queue_blocks_the_other() {
        let outbox = Outbox::default();
        for id in 0..100 {
            outbox.push(plain(id));
            outbox.push(settlement(&id.to_string(), 1, None));
        }
        let count = |taken: &[DeferredClaim]| {
            taken.iter().filter(|claim| matches!(claim.kind, DeferredKind::Settlement(_))).count()
        };
        let taken = outbox.take(50);
        assert_eq!((taken.len(), count(&taken)), (50, 25));
        let taken = outbox.take(130);
        assert_eq!((taken.len(), count(&taken)), (130, 65));
        let taken = outbox.take(130);
        assert_eq!((taken.len(), count(&taken)), (20, 10));
    }

    #[test]
    fn an_unknown_outcome_is_retried_only_while_its_record_lasts() {
        let at = |seconds: u64| START.after(Span::from_secs(seconds));
        let sure = settlement("a", 1, None);
        assert!(sure.may_send(at(59)) && !sure.is_expired(at(59)) && sure.is_expired(at(60)));
        let mut unknown = settlement("a", 1, Some(START));
        unknown.until = Timestamp::MAX;
        assert!(unknown.may_send(at(29)) && !unknown.may_send(at(30)));
        assert!(!unknown.is_expired(at(59)) && unknown.is_expired(at(60)));
    }
}
