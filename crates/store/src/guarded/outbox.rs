//! The outbox: deferred claims that wait until they can be sent. Bounded for each region: what waits for one that is away
//! takes no room from the others and holds none of them up.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Once, RegionId};

use super::deferred::{self, DeferredClaim, DeferredKind};

/// The maximum number of claims that wait for a region. Further ones are dropped.
const MAX_QUEUED: usize = 10_000;

/// The queues of deferred claims.
#[derive(Debug)]
pub(super) struct Outbox {
    queues: Mutex<Queues>,
    /// The number of queued settlements. Usually 0, and then the lock is not needed.
    settlements: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Queues {
    /// By the number of the region. Claims for regions that do not exist are with the last one, until they expire.
    regions: Box<[RegionQueue]>,
    /// Settlements by name, until they are delivered. Repeating one while the store is unavailable adds nothing. Of all regions,
    /// because a name is used once.
    settlements: HashMap<u128, QueuedSettlement, foldhash::fast::RandomState>,
}

/// What waits for one region.
#[derive(Debug, Default)]
struct RegionQueue {
    /// Claims that are sent at most once.
    others: VecDeque<DeferredClaim>,
    /// The number of settlements, also of those in flight.
    settlements: usize,
    /// The names of the settlements that are not in flight, each once, in the order in which they are sent.
    order: VecDeque<u128>,
}

#[derive(Debug)]
struct QueuedSettlement {
    claim: DeferredClaim,
    /// The index of its queue.
    queue: usize,
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
    /// The outbox of a store with so many regions, this one included.
    pub(super) fn new(regions: usize) -> Outbox {
        let regions = (0..regions.max(1)).map(|_| RegionQueue::default()).collect();
        let queues = Queues { regions, settlements: HashMap::default() };
        Outbox { queues: Mutex::new(queues), settlements: AtomicUsize::new(0), dropped: AtomicU64::new(0) }
    }

    pub(super) fn push(&self, claim: DeferredClaim) -> PushOutcome {
        let settlement = match &claim.kind {
            DeferredKind::Settlement(once) => Some((once.queue_name(), once.body, once.unknown_since)),
            DeferredKind::Plain | DeferredKind::Release { .. } | DeferredKind::Verdict(_) => None,
        };
        let mut queues = self.queues();
        let Queues { regions, settlements } = &mut *queues;
        if let Some((name, body, unknown_since)) = settlement
            && let Some(queued) = settlements.get_mut(&name)
        {
            if queued.claim.body() != Some(body) {
                return PushOutcome::Conflict;
            }
            queued.claim.note_unknown(unknown_since);
            if std::mem::take(&mut queued.in_flight) {
                regions[queued.queue].order.push_back(name);
            }
            return PushOutcome::Queued;
        }
        let queue = index(claim.key().map_or(RegionId::HERE, |key| key.region()), regions);
        let region = &mut regions[queue];
        if region.len() >= MAX_QUEUED {
            self.count_dropped();
            return PushOutcome::Dropped;
        }
        match settlement {
            Some((name, ..)) => {
                region.settlements += 1;
                region.order.push_back(name);
                settlements.insert(name, QueuedSettlement { claim, queue, in_flight: false });
                self.settlements.store(settlements.len(), Ordering::Release);
            }
            None => region.others.push_back(claim),
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
            let region = &mut queues.regions[queued.queue];
            region.settlements -= 1;
            if !queued.in_flight {
                region.order.retain(|other| *other != name);
            }
            self.settlements.store(queues.settlements.len(), Ordering::Release);
        }
    }

    /// Takes up to `max` claims to send to a region, of both kinds, so that neither blocks the other. Settlements stay in the
    /// outbox, marked as in flight, until they are removed; a sender that could not deliver one pushes it again.
    pub(super) fn take(&self, region: RegionId, max: usize) -> Vec<DeferredClaim> {
        let mut queues = self.queues();
        let Queues { regions, settlements } = &mut *queues;
        let region = &mut regions[index(region, regions)];
        let count = region.order.len().min((max / 2).max(max.saturating_sub(region.others.len())));
        let others = region.others.len().min(max - count);
        let mut taken = Vec::with_capacity(count + others);
        for name in region.order.drain(..count) {
            if let Some(queued) = settlements.get_mut(&name) {
                queued.in_flight = true;
                taken.push(queued.claim.clone());
            }
        }
        taken.extend(region.others.drain(..others));
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.queues().regions.iter().map(RegionQueue::len).sum()
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

impl RegionQueue {
    fn len(&self) -> usize {
        self.others.len() + self.settlements
    }
}

/// The index of a region's queue.
fn index(region: RegionId, queues: &[RegionQueue]) -> usize {
    usize::from(region.number()).min(queues.len() - 1)
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
        settlement_in(RegionId::HERE, name, body, unknown_since)
    }

    fn settlement_in(region: RegionId, name: &str, body: u64, unknown_since: Option<Timestamp>) -> DeferredClaim {
        let scope = Scope::for_records("d", "records", Home::Own);
        let key = Key::new(&scope, smallvec![Value::Text(name)]).in_region(region);
        let once = Once { key, body, terms: 0, keep: KEEP };
        let claim = Claim { id: ClaimId(1), charges: SmallVec::new(), once: None, timeout: None };
        let mut deferred = DeferredClaim::settlement(&claim, &once, None, START);
        deferred.note_unknown(unknown_since);
        deferred
    }

    #[test]
    fn what_comes_past_the_bound_is_dropped_and_counted() {
        let outbox = Outbox::new(1);
        for id in 0..MAX_QUEUED as u128 + 3 {
            outbox.push(plain(id));
        }
        assert_eq!((outbox.len(), outbox.dropped()), (MAX_QUEUED, 3));
        assert_eq!((outbox.push(settlement("a", 1, None)), outbox.dropped()), (PushOutcome::Dropped, 4));
        let first: Vec<u128> = outbox.take(RegionId::HERE, 2).iter().map(|claim| claim.id.0).collect();
        assert_eq!((first, outbox.len()), (vec![0, 1], MAX_QUEUED - 2));
        assert_eq!(outbox.take(RegionId::HERE, usize::MAX).len(), MAX_QUEUED - 2);
    }

    #[test]
    fn the_same_settlement_is_queued_once() {
        let outbox = Outbox::new(1);
        assert_eq!(outbox.push(settlement("a", 1, None)), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 1, Some(START.after(KEEP)))), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 1, Some(START))), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("a", 2, None)), PushOutcome::Conflict);
        assert_eq!(outbox.push(settlement("b", 2, None)), PushOutcome::Queued);
        assert_eq!((outbox.len(), outbox.dropped()), (2, 0));
        let taken = outbox.take(RegionId::HERE, 10);
        let sent: Vec<_> = taken
            .iter()
            .map(|claim| match &claim.kind {
                DeferredKind::Settlement(once) => (once.body, once.unknown_since),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sent, [(1, Some(START)), (2, None)], "the earliest unknown outcome counts");
        // In flight they stay in the outbox, but are not sent again.
        assert_eq!((outbox.len(), outbox.take(RegionId::HERE, 10).len()), (2, 0));
        assert_eq!(outbox.push(settlement("a", 2, None)), PushOutcome::Conflict);
        assert_eq!(outbox.push(settlement("b", 2, None)), PushOutcome::Queued, "it could not be delivered");
        assert_eq!((outbox.len(), outbox.take(RegionId::HERE, 10).len()), (2, 1));
    }

    #[test]
    fn delivered_settlements_are_removed() {
        let outbox = Outbox::new(1);
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
        assert_eq!((outbox.take(RegionId::HERE, 1).len(), outbox.len()), (1, 2));
        outbox.remove(&once("a", 1), None);
        outbox.remove(&once("c", 1), None);
        assert!(!outbox.has_conflict(&once("a", 2)));
        assert_eq!((outbox.take(RegionId::HERE, 10).len(), outbox.len()), (0, 0));
    }

    #[test]
    fn neither_queue_blocks_the_other() {
        let outbox = Outbox::new(1);
        for id in 0..100 {
            outbox.push(plain(id));
            outbox.push(settlement(&id.to_string(), 1, None));
        }
        let count = |taken: &[DeferredClaim]| {
            taken.iter().filter(|claim| matches!(claim.kind, DeferredKind::Settlement(_))).count()
        };
        let taken = outbox.take(RegionId::HERE, 50);
        assert_eq!((taken.len(), count(&taken)), (50, 25));
        let taken = outbox.take(RegionId::HERE, 130);
        assert_eq!((taken.len(), count(&taken)), (130, 65));
        let taken = outbox.take(RegionId::HERE, 130);
        assert_eq!((taken.len(), count(&taken)), (20, 10));
    }

    #[test]
    fn a_region_that_is_away_takes_no_room_from_others() {
        const WEST: RegionId = RegionId::new(1);
        let outbox = Outbox::new(2);
        for id in 0..=MAX_QUEUED {
            outbox.push(settlement_in(WEST, &format!("west-{id}"), 1, None));
        }
        assert_eq!((outbox.len(), outbox.dropped()), (MAX_QUEUED, 1));
        assert_eq!(outbox.push(plain(1)), PushOutcome::Queued);
        assert_eq!(outbox.push(settlement("here", 1, None)), PushOutcome::Queued);
        assert_eq!(outbox.take(RegionId::HERE, 50).len(), 2, "nothing else is in the turn of this region");
        let taken = outbox.take(WEST, 50);
        assert_eq!((taken.len(), outbox.len()), (50, MAX_QUEUED + 1));
        taken.iter().for_each(|claim| outbox.remove_claim(claim));
        outbox.remove_claim(&settlement("here", 1, None));
        assert_eq!(outbox.len(), MAX_QUEUED - 50);
        // A name is used once, in whatever region.
        assert_eq!(outbox.push(settlement("west-99", 2, None)), PushOutcome::Conflict);
        // Claims for a region that does not exist expire with those of the last one.
        outbox.push(settlement_in(RegionId::new(9), "nowhere", 1, None));
        assert_eq!(outbox.take(WEST, MAX_QUEUED).len(), MAX_QUEUED - 49);
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
