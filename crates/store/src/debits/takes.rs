//! What was taken in this region, until it is handed to the outboxes of the other regions.
//!
//! Units of a bucket drain from [`APART_AFTER`] on: from then on regions count alone, and nobody is to be refused later for
//! what is long over. Below the threshold they drain after the time in which the bucket refills: within any such time, no
//! more than the threshold remains unknown to the other regions.

use std::sync::Arc;

use tollgate_core::{Charge, Key, Timestamp};

use super::UnitCounts;
use super::link::APART_AFTER;
use super::waiting::{Capacity, DebitTarget, Entry, HasTarget, Place, WaitingQueue, WaitingUnits, Waitlist};
use crate::clock::Steady;

/// Takes of a part of the keys, by counter. No I/O, no clock.
///
/// Units of counters below their threshold wait here until it is reached, then all are due. It is reached by what the
/// counter has used, or by what waits on all servers of the region: a bucket that drains as fast as it fills never has used
/// much.
#[derive(Debug)]
pub(super) struct Takes {
    pub(super) capacity: Capacity,
    /// Those below their threshold.
    below: Waitlist,
    due: Waitlist,
    /// What was given back of units that were handed over before.
    returns: WaitingQueue<Return>,
    counts: UnitCounts,
}

/// What is handed to the outboxes with a beat: what was taken goes before what was given back, so that no return overtakes
/// its debit.
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    /// What is due, oldest first.
    pub(super) due: Vec<Entry>,
    pub(super) returns: WaitingQueue<Return>,
}

/// Units that were given back here.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) target: Arc<DebitTarget>,
    pub(super) units: u64,
    pub(super) taken_at: Timestamp,
    pub(super) since: Steady,
}

/// A take of a charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take {
    /// The hash of the counter.
    pub(super) hash: u128,
    pub(super) units: u64,
    /// Whether the counter has reached its threshold.
    pub(super) is_due: bool,
    /// The servers that count in this region, this one included.
    pub(super) servers: u64,
    /// By the store's clock.
    pub(super) at: Timestamp,
    pub(super) now: Steady,
}

/// What became of units of a counter below its threshold.
#[derive(Debug)]
enum Added {
    /// They wait with those before.
    Waits,
    /// They and those before are due.
    IsDue(Entry),
    /// There are none before.
    IsNew,
}

/// The entries below their threshold that a beat ages.
const AGED_AT_ONCE: usize = 64;

impl Takes {
    pub(super) fn new(capacity: Capacity) -> Takes {
        Takes {
            capacity,
            below: Waitlist::default(),
            due: Waitlist::default(),
            returns: WaitingQueue::default(),
            counts: UnitCounts::default(),
        }
    }

    /// Adds what a charge took. Returns whether its counter is newly due.
    pub(super) fn add(&mut self, take: Take, charge: &Charge<'_>) -> bool {
        let Take { hash, units, is_due, servers, at, now } = take;
        if let Some(entry) = self.due.get_mut(hash) {
            let (aged, lost) = entry.waiting.add(&entry.target, units, at);
            self.count(aged, lost);
            return false;
        }
        let mut entry = match self.add_below(take) {
            Added::Waits => return false,
            // What waited until now is late from now on.
            Added::IsDue(entry) => Entry { since: now, ..entry },
            Added::IsNew => {
                let target = DebitTarget::new(hash, charge);
                let waiting = WaitingUnits::new(&target, at.after(target.limit.refill_time()));
                let mut entry = Entry { target, waiting, since: now };
                let (aged, lost) = entry.waiting.add(&entry.target, units, at);
                self.count(aged, lost);
                self.make_room(at);
                if !is_due && !reaches_threshold(&entry, servers) {
                    self.below.insert(entry);
                    return false;
                }
                entry
            }
        };
        entry.waiting.drain_from(at.after(APART_AFTER));
        self.due.insert(entry);
        true
    }

    /// Gives back units: those that still wait here are not handed over, the rest was and is given back later. `at` is the
    /// time of the store, `now` that of this server.
    pub(super) fn give_back(
        &mut self,
        hash: u128,
        charge: &Charge<'_>,
        units: u64,
        taken_at: Timestamp,
        at: Timestamp,
        now: Steady,
    ) {
        let mut left = units;
        for list in [&mut self.due, &mut self.below] {
            let Some(entry) = list.get_mut(hash) else { continue };
            let (aged, removed) = entry.waiting.remove(&entry.target, left, at);
            self.counts.aged += aged;
            self.counts.returned += removed;
            left -= removed;
            if entry.waiting.units() == 0 {
                list.remove(hash);
            }
        }
        if left == 0 {
            return;
        }
        while self.capacity.is_full(self.returns.len(), self.returns.bytes()) {
            let Some(oldest) = self.returns.pop_front() else { break };
            self.counts.back_dropped += oldest.units;
        }
        self.returns.push_back(Return { target: DebitTarget::new(hash, charge), units: left, taken_at, since: now });
    }

    /// Drops what waits of a counter that was reset.
    pub(super) fn forget(&mut self, hash: u128) {
        for list in [&mut self.due, &mut self.below] {
            self.counts.returned += list.remove(hash).map_or(0, |entry| entry.waiting.units());
        }
    }

    /// Drops what waits of some counters, among up to `count` from a place on. Returns their hashes, and where to go on.
    pub(super) fn forget_some(
        &mut self,
        is_forgotten: impl Fn(&Key<'_>) -> bool,
        from: (usize, Place),
        count: usize,
    ) -> (Vec<u128>, Option<(usize, Place)>) {
        // What becomes due meanwhile is found there.
        let lists = [&self.below, &self.due];
        let (number, place) = from;
        let Some(list) = lists.get(number) else { return (Vec::new(), None) };
        let (hashes, next) = list.find(is_forgotten, place, count);
        let next =
            next.map(|place| (number, place)).or((number + 1 < lists.len()).then_some((number + 1, Place::default())));
        hashes.iter().for_each(|hash| self.forget(*hash));
        (hashes, next)
    }

    /// What is due, and what was given back.
    pub(super) fn hand_over(&mut self, at: Timestamp) -> HandedOver {
        self.counts.aged += self.below.age_some(AGED_AT_ONCE, at);
        let due = std::iter::from_fn(|| self.due.pop_oldest()).collect();
        HandedOver { due, returns: std::mem::take(&mut self.returns) }
    }

    /// Since when the oldest that is due waits.
    pub(super) fn oldest(&self) -> Option<Steady> {
        self.due.oldest()
    }

    /// The counters that wait.
    pub(super) fn len(&self) -> usize {
        self.below.len() + self.due.len()
    }

    /// What waits, and the bytes of its keys' values.
    #[cfg(test)]
    pub(super) fn items_and_bytes(&self) -> (usize, usize) {
        let bytes = self.below.bytes() + self.due.bytes() + self.returns.bytes();
        (self.len() + self.returns.len(), bytes)
    }

    #[cfg(test)]
    pub(super) fn waiting_units(&self) -> u64 {
        self.below.units() + self.due.units()
    }

    pub(super) fn counts(&self) -> UnitCounts {
        self.counts
    }

    /// Adds units to those of a counter that wait below its threshold. If nothing of these counts any more, the new units
    /// begin another entry.
    fn add_below(&mut self, take: Take) -> Added {
        let Take { hash, units, is_due, servers, at, .. } = take;
        let Some(entry) = self.below.get_mut(hash) else { return Added::IsNew };
        let (aged, lost) = entry.waiting.add(&entry.target, units, at);
        self.counts.aged += aged;
        if aged > 0 && entry.waiting.units() + lost == units {
            self.below.remove(hash);
            return Added::IsNew;
        }
        self.counts.dropped += lost;
        if !is_due && !reaches_threshold(entry, servers) {
            return Added::Waits;
        }
        self.below.remove(hash).map_or(Added::IsNew, Added::IsDue)
    }

    fn count(&mut self, aged: u64, lost: u64) {
        self.counts.aged += aged;
        self.counts.dropped += lost;
    }

    /// Drops the oldest of those below their threshold, else the oldest that is due.
    fn make_room(&mut self, at: Timestamp) {
        while self.capacity.is_full(self.len(), self.below.bytes() + self.due.bytes()) {
            let (lost, oldest) = match self.below.pop_oldest() {
                Some(oldest) => (&mut self.counts.evicted, Some(oldest)),
                None => (&mut self.counts.dropped, self.due.pop_oldest()),
            };
            let Some(mut oldest) = oldest else { return };
            self.counts.aged += oldest.waiting.age(&oldest.target, at);
            *lost += oldest.waiting.units();
        }
    }
}

/// Whether so many units wait that the others should know, however many the counter has drained meanwhile. The threshold is
/// that of the region: as many may wait on each of its other servers, of which this one knows nothing.
fn reaches_threshold(entry: &Entry, servers: u64) -> bool {
    let terms = entry.target.key().scope().global();
    let waiting = entry.waiting.units().saturating_mul(servers.max(1));
    terms.is_some_and(|terms| terms.reaches_threshold(waiting, entry.target.limit.quota()))
}

impl HasTarget for Return {
    fn target(&self) -> &DebitTarget {
        &self.target
    }
}

impl Entry {
    /// The same for another region.
    pub(super) fn share(&self) -> Entry {
        Entry { target: Arc::clone(&self.target), waiting: self.waiting.clone(), since: self.since }
    }
}
