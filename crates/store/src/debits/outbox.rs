//! What one other region is to be debited. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Key, Span, Timestamp};

use super::UnitCounts;
use super::message::{DebitMessage, Delivery, What};
use super::pace::Pace;
use super::queue::ShardQueue;
use super::takes::Return;
use super::waiting::{Capacity, DebitTarget, Entry, Place};
use crate::clock::Steady;
use crate::sharded::ShardId;

/// The outbox of one other region.
#[derive(Debug)]
pub(super) struct RegionOutbox {
    capacity: Capacity,
    queues: BTreeMap<ShardId, ShardQueue>,
    /// The counters with debits that have no answer yet.
    unanswered: HashMap<u128, Unanswered, foldhash::fast::RandomState>,
    /// The returns that wait for such an answer.
    held_returns: usize,
    /// The bytes of their keys' values.
    held_bytes: usize,
    pace: Pace,
    /// The ages of the debits that have no answer yet.
    in_flight: BTreeSet<(Steady, u64)>,
    next: u64,
    counts: UnitCounts,
}

/// Debits of one counter that have no answer yet.
#[derive(Debug)]
struct Unanswered {
    target: Arc<DebitTarget>,
    debits: u32,
    /// Units to give back. They may be those of the debits, and must not be given back before they are counted.
    returns: Vec<DebitMessage>,
    /// Debits up to this number were sent before the counter was reset. They are not sent again.
    reset_at: u64,
}

/// The queues that are retained although nothing is in them.
const MAX_QUEUES: usize = 1_024;
/// The messages that one turn looks at. Those that no longer count are dropped and not sent.
pub(super) const MAX_AT_ONCE: usize = 4_096;
/// The messages whose shards are compared with the queue in which they wait.
const COMPARED: usize = 16;

impl RegionOutbox {
    pub(super) fn new(capacity: Capacity, pace: Pace) -> RegionOutbox {
        RegionOutbox {
            capacity,
            queues: BTreeMap::new(),
            unanswered: HashMap::default(),
            held_returns: 0,
            held_bytes: 0,
            pace,
            in_flight: BTreeSet::new(),
            next: 0,
            counts: UnitCounts::default(),
        }
    }

    /// Adds units to debit on a shard. They are newer than what waits of the same counter.
    pub(super) fn add(&mut self, newer: Entry, shard: ShardId, at: Timestamp) {
        if let Some(entry) = self.queues.get_mut(&shard).and_then(|queue| queue.debits.get_mut(newer.target.hash)) {
            let (aged, lost) = entry.waiting.add(&entry.target, newer.waiting.units(), at);
            self.counts.aged += aged;
            self.counts.dropped += lost;
            return;
        }
        self.make_room(at);
        self.queue(shard).debits.insert(newer);
    }

    /// Gives back units: those that still wait are not sent, the rest is given back in the other region, when it has answered
    /// the debits of the counter.
    pub(super) fn give_back(&mut self, returned: Return, shard: ShardId, at: Timestamp) {
        let Return { target, units, taken_at, since } = returned;
        let mut left = units;
        for queue in self.queues.values_mut() {
            let Some(entry) = queue.debits.get_mut(target.hash) else { continue };
            let (aged, removed) = entry.waiting.remove(&entry.target, left, at);
            self.counts.aged += aged;
            self.counts.returned += removed;
            left -= removed;
            if entry.waiting.units() == 0 {
                queue.debits.remove(target.hash);
            }
        }
        if left == 0 {
            return;
        }
        while self.has_full_returns() {
            let oldest = self.queues.values_mut().find_map(|queue| queue.returns.pop_front());
            self.counts.back_dropped += oldest.as_ref().map_or(left, |message| message.units);
            if oldest.is_none() {
                return;
            }
        }
        let what = What::Return { taken_at };
        let message = DebitMessage { target, units: left, what, since, shard, number: 0 };
        match self.unanswered.get_mut(&message.target.hash) {
            Some(unanswered) => {
                self.held_returns += 1;
                self.held_bytes += message.target.bytes;
                unanswered.returns.push(message);
            }
            None => self.queue(shard).returns.push_back(message),
        }
    }

    /// Drops what waits of a counter that was reset.
    pub(super) fn forget(&mut self, hash: u128) {
        for queue in self.queues.values_mut() {
            self.counts.returned += queue.debits.remove(hash).map_or(0, |entry| entry.waiting.units());
        }
        if let Some(unanswered) = self.unanswered.get_mut(&hash) {
            unanswered.reset_at = self.next;
        }
    }

    /// Drops what waits of some counters, among up to `count` from a place on. Returns their hashes, and where to go on. The
    /// last step is for those whose debits have no answer yet, which are few.
    pub(super) fn forget_some(
        &mut self,
        is_forgotten: impl Fn(&Key<'_>) -> bool,
        from: (ShardId, Place),
        count: usize,
    ) -> (Vec<u128>, Option<(ShardId, Place)>) {
        let Some((shard, queue)) = self.queues.range(from.0..).next() else {
            let unanswered = self.unanswered.iter().filter(|(_, unanswered)| is_forgotten(&unanswered.target.key()));
            let hashes: Vec<u128> = unanswered.map(|(hash, _)| *hash).collect();
            hashes.iter().for_each(|hash| self.forget(*hash));
            return (hashes, None);
        };
        let place = if *shard == from.0 { from.1 } else { Place::default() };
        let (hashes, next) = queue.debits.find(is_forgotten, place, count);
        let next = match next {
            Some(place) => (*shard, place),
            None => (ShardId(shard.0.saturating_add(1)), Place::default()),
        };
        hashes.iter().for_each(|hash| self.forget(*hash));
        (hashes, Some(next))
    }

    /// Messages to send now, oldest first: at most `max`, and no more than the pace permits. What waits for a shard that
    /// can't be reached does not hold up the rest.
    pub(super) fn take(
        &mut self,
        max: usize,
        at: Timestamp,
        now: Steady,
        is_reachable: impl Fn(ShardId) -> bool,
    ) -> Vec<DebitMessage> {
        let mut ready: Vec<(ShardId, &mut ShardQueue, usize)> = Vec::with_capacity(self.queues.len());
        for (shard, queue) in self.queues.iter_mut().filter(|(shard, _)| is_reachable(**shard)) {
            let count = queue.ready(now);
            ready.push((*shard, queue, count));
        }
        let count = ready.iter().map(|(_, _, count)| count).sum::<usize>().min(max);
        let count = self.pace.take(count, now);
        let mut messages = Vec::with_capacity(count);
        let mut looked_at = 0;
        while messages.len() < count && looked_at < MAX_AT_ONCE {
            looked_at += 1;
            let next = ready.iter_mut().filter(|(_, queue, left)| *left > 0 && queue.waiting() > 0);
            let Some((shard, queue, left)) = next.min_by_key(|(_, queue, _)| queue.next_since()) else { break };
            let (message, aged) = queue.pop(*shard, at);
            self.counts.aged += aged;
            let Some(mut message) = message else { continue };
            *left -= 1;
            self.next += 1;
            message.number = self.next;
            queue.begin(message.number, now);
            if !message.is_return() {
                self.in_flight.insert((message.since, message.number));
                let target = &message.target;
                let unanswered = self.unanswered.entry(target.hash).or_insert_with(|| Unanswered {
                    target: Arc::clone(target),
                    debits: 0,
                    returns: Vec::new(),
                    reset_at: 0,
                });
                unanswered.debits += 1;
            }
            messages.push(message);
        }
        self.pace.put_back(count - messages.len());
        messages
    }

    /// Ends a message. `shard` is that of its key now. Returns how long its first unit waited, if the other region counts it.
    pub(super) fn end(
        &mut self,
        message: DebitMessage,
        delivery: Delivery,
        shard: ShardId,
        at: Timestamp,
        now: Steady,
    ) -> Option<Span> {
        if let Some(queue) = self.queues.get_mut(&message.shard) {
            queue.end(message.number, delivery);
            if queue.is_unused() {
                self.queues.remove(&message.shard);
            }
        }
        let DebitMessage { target, units, what, since, number, .. } = message;
        let waiting = match what {
            What::Debit(waiting) => waiting,
            What::Return { .. } if delivery == Delivery::NotSent && !self.has_full_returns() => {
                self.queue(shard).returns.push_front(DebitMessage { target, units, what, since, shard, number });
                return None;
            }
            What::Return { .. } => {
                match delivery {
                    Delivery::Done => self.counts.back += units,
                    Delivery::Unsure => self.counts.back_unsure += units,
                    Delivery::NotSent => self.counts.back_dropped += units,
                }
                return None;
            }
        };
        self.in_flight.remove(&(since, number));
        let hash = target.hash;
        match delivery {
            Delivery::Done => self.counts.sent += units,
            Delivery::Unsure => self.counts.unsure += units,
            Delivery::NotSent => self.wait_again(Entry { target, waiting, since }, number, shard, at),
        }
        self.end_debit(hash, shard);
        (delivery == Delivery::Done).then(|| now.since(since))
    }

    /// A debit did not arrive. What was given back of it meanwhile, or was reset, is not sent again.
    fn wait_again(&mut self, mut entry: Entry, number: u64, shard: ShardId, at: Timestamp) {
        let hash = entry.target.hash;
        if let Some(Unanswered { returns, reset_at, .. }) = self.unanswered.get_mut(&hash) {
            if number <= *reset_at {
                self.counts.returned += entry.waiting.units();
                return;
            }
            for message in returns.iter_mut() {
                let (aged, removed) = entry.waiting.remove(&entry.target, message.units, at);
                self.counts.aged += aged;
                self.counts.returned += removed;
                message.units -= removed;
            }
            let before = returns.len();
            returns.retain(|message| message.units > 0);
            // They are of the same counter.
            self.held_returns -= before - returns.len();
            self.held_bytes -= (before - returns.len()) * entry.target.bytes;
        }
        if entry.waiting.units() == 0 {
            return;
        }
        let newer = self.queue(shard).debits.remove(hash);
        self.make_room(at);
        self.queue(shard).debits.insert(entry);
        if let Some(newer) = newer {
            self.add(newer, shard, at);
        }
    }

    /// A debit of a counter has an answer. With that to the last one, what is given back can be sent.
    fn end_debit(&mut self, hash: u128, shard: ShardId) {
        let Some(unanswered) = self.unanswered.get_mut(&hash) else { return };
        unanswered.debits = unanswered.debits.saturating_sub(1);
        if unanswered.debits == 0 {
            let returns = self.unanswered.remove(&hash).map(|unanswered| unanswered.returns).unwrap_or_default();
            self.held_returns -= returns.len();
            self.held_bytes -= returns.iter().map(|message| message.target.bytes).sum::<usize>();
            for message in returns {
                self.queue(shard).returns.push_back(message);
            }
        }
    }

    /// Moves what waits for a shard that can't be reached to the shards that have its counters now: perhaps another node took
    /// over.
    pub(super) fn reroute(
        &mut self,
        is_reachable: impl Fn(ShardId) -> bool,
        shard_of: impl Fn(Key<'_>) -> ShardId,
        at: Timestamp,
    ) {
        let unreachable: Vec<ShardId> = self.queues.keys().copied().filter(|shard| !is_reachable(*shard)).collect();
        for shard in unreachable {
            let Some(queue) = self.queues.get_mut(&shard) else { continue };
            let has_moved = queue.debits.keys().take(COMPARED).any(|key| shard_of(key) != shard)
                || queue.returns.iter().take(COMPARED).any(|message| shard_of(message.target.key()) != shard);
            if !has_moved {
                continue;
            }
            let (debits, returns) = (std::mem::take(&mut queue.debits), std::mem::take(&mut queue.returns));
            for entry in debits.into_entries() {
                let shard = shard_of(entry.target.key());
                self.add(entry, shard, at);
            }
            for mut message in returns.into_items() {
                message.shard = shard_of(message.target.key());
                self.queue(message.shard).returns.push_back(message);
            }
        }
    }

    /// Since when the oldest debit waits, or is without an answer.
    pub(super) fn oldest(&self) -> Option<Steady> {
        let in_flight = self.in_flight.first().map(|(since, _)| *since);
        in_flight.into_iter().chain(self.queues.values().filter_map(|queue| queue.debits.oldest())).min()
    }

    /// The messages that wait, except for returns that wait for an answer.
    pub(super) fn len(&self) -> usize {
        self.queues.values().map(ShardQueue::waiting).sum()
    }

    /// Whether something waits, or has no answer yet.
    pub(super) fn has_keys(&self) -> bool {
        !self.unanswered.is_empty() || self.len() > 0
    }

    /// What waits, and the bytes of its keys' values.
    #[cfg(test)]
    pub(super) fn items_and_bytes(&self) -> (usize, usize) {
        let bytes = self.queues.values().map(|queue| queue.debits.bytes() + queue.returns.bytes());
        (self.len() + self.held_returns, self.held_bytes + bytes.sum::<usize>())
    }

    #[cfg(test)]
    pub(super) fn waiting_units(&self) -> u64 {
        self.queues.values().map(|queue| queue.debits.units()).sum()
    }

    #[cfg(test)]
    pub(super) fn has_debits(&self) -> bool {
        self.debits() > 0
    }

    pub(super) fn counts(&self) -> UnitCounts {
        self.counts
    }

    fn debits(&self) -> usize {
        self.queues.values().map(|queue| queue.debits.len()).sum()
    }

    fn returns(&self) -> usize {
        self.held_returns + self.queues.values().map(|queue| queue.returns.len()).sum::<usize>()
    }

    fn has_full_returns(&self) -> bool {
        let bytes = self.queues.values().map(|queue| queue.returns.bytes()).sum::<usize>();
        self.capacity.is_full(self.returns(), self.held_bytes + bytes)
    }

    fn queue(&mut self, shard: ShardId) -> &mut ShardQueue {
        if self.queues.len() >= MAX_QUEUES && !self.queues.contains_key(&shard) {
            self.queues.retain(|_, queue| !queue.is_idle());
        }
        self.queues.entry(shard).or_default()
    }

    fn make_room(&mut self, at: Timestamp) {
        while self.capacity.is_full(self.debits(), self.queues.values().map(|queue| queue.debits.bytes()).sum()) {
            let oldest = self.queues.values_mut().min_by_key(|queue| (queue.debits.len() == 0, queue.debits.oldest()));
            let Some(mut oldest) = oldest.and_then(|queue| queue.debits.pop_oldest()) else { return };
            self.counts.aged += oldest.waiting.age(&oldest.target, at);
            self.counts.dropped += oldest.waiting.units();
        }
    }
}
