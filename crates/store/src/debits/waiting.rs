//! Units that wait to be debited in other regions.
//!
//! What waits is counted as the limit counts it: what a window no longer counts and what a bucket has drained is dropped
//! with time, so that nobody is refused elsewhere for what is long over. A sliding window in several parts and a log are
//! counted as a sliding window in one part, which needs two numbers instead of up to 10,000.
//!
//! Units of a bucket do not drain at first: the other region's counter drains by itself, and what it drains is used up by
//! its own takes and those of all regions. Drained here as well, units taken at the rate of the limit would never arrive.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tollgate_core::algorithm::TickCharge;
use tollgate_core::{Algorithm, Charge, ClaimId, CounterState, Key, Limit, OwnedKey, Timestamp, Value};

use crate::clock::Steady;

/// A counter whose units are debited in other regions.
#[derive(Debug)]
pub(super) struct DebitTarget {
    pub(super) hash: u128,
    pub(super) key: OwnedKey,
    pub(super) limit: Limit,
    /// The limit by which waiting units are counted, if it is another.
    waiting_limit: Option<Limit>,
    /// Of the key's values, which may be long.
    pub(super) bytes: usize,
}

/// How much waits at most: so many counters, and so many bytes of their values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

/// Units of one counter, less those that no longer count.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingUnits {
    /// Of those that are not [young](Self::is_young).
    state: CounterState,
    units: u64,
    /// From when on units of a bucket drain.
    drains_from: Timestamp,
    /// Whether the units are not in the state yet, because they do not drain yet.
    is_young: bool,
}

/// What waits of one counter.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: Arc<DebitTarget>,
    pub(super) waiting: WaitingUnits,
    /// When the first of the units was taken.
    pub(super) since: Steady,
}

/// The place of an entry in the order of their age.
pub(super) type Place = (Steady, u128);

/// Entries by counter, and in the order of their age.
#[derive(Debug, Default)]
pub(super) struct Waitlist {
    entries: HashMap<u128, Entry, foldhash::fast::RandomState>,
    order: BTreeSet<Place>,
    bytes: usize,
    /// Where the next entries are aged.
    cursor: Place,
}

/// What has a counter.
pub(super) trait HasTarget {
    fn target(&self) -> &DebitTarget;
}

/// Items that wait in the order in which they came.
#[derive(Debug)]
pub(super) struct WaitingQueue<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl DebitTarget {
    pub(super) fn new(hash: u128, charge: &Charge<'_>) -> Arc<DebitTarget> {
        let limit = charge.limit.clone();
        let bytes = charge.key.values().iter().map(value_bytes).sum();
        let key = OwnedKey::from(&charge.key);
        Arc::new(DebitTarget { hash, key, waiting_limit: waiting_limit(&limit), limit, bytes })
    }

    pub(super) fn key(&self) -> Key<'_> {
        self.key.key()
    }

    fn waiting_limit(&self) -> &Limit {
        self.waiting_limit.as_ref().unwrap_or(&self.limit)
    }
}

fn value_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Absent | Value::Network { .. } => 0,
    }
}

impl Capacity {
    /// Whether the next item has no room. The last one may exceed the bytes.
    pub(super) fn is_full(self, keys: usize, bytes: usize) -> bool {
        keys >= self.keys.max(1) || bytes >= self.bytes.max(1)
    }
}

/// The limit by which waiting units are counted, if it is another.
fn waiting_limit(limit: &Limit) -> Option<Limit> {
    let period = limit.period();
    let in_one_part = Algorithm::SlidingWindow { sub_windows: 1 };
    match limit.algorithm() {
        Algorithm::SlidingWindow { sub_windows: 2.. } | Algorithm::SlidingLog => {
            Limit::new(limit.amount().min(period.max_count()), period.clone(), in_one_part).ok()
        }
        _ => None,
    }
}

impl WaitingUnits {
    /// None yet. Those of a bucket drain from then on.
    pub(super) fn new(target: &DebitTarget, drains_from: Timestamp) -> WaitingUnits {
        let is_young = matches!(target.limit.algorithm(), Algorithm::Bucket { .. });
        WaitingUnits { drains_from, is_young, ..WaitingUnits::default() }
    }

    /// Units that do not drain yet do so from then on.
    pub(super) fn drain_from(&mut self, drains_from: Timestamp) {
        self.drains_from = drains_from;
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Drops what no longer counts, and returns how many units that were.
    pub(super) fn age(&mut self, target: &DebitTarget, at: Timestamp) -> u64 {
        self.advance(target.waiting_limit(), at).1
    }

    /// Adds units. Returns how many of those before no longer count, and how many of the new ones are too many to count.
    pub(super) fn add(&mut self, target: &DebitTarget, units: u64, at: Timestamp) -> (u64, u64) {
        let limit = target.waiting_limit();
        let (now, aged) = self.advance(limit, at);
        let added = match self.is_young {
            true => units.min(limit.period().max_count().saturating_sub(self.units)),
            false => self.state.spend(&TickCharge { limit, now, by: ClaimId::default(), units }).min(units),
        };
        self.units = self.units.saturating_add(added);
        (aged, units - added)
    }

    /// Removes up to so many units, newest first. Returns how many of those before no longer count, and how many it removed.
    pub(super) fn remove(&mut self, target: &DebitTarget, units: u64, at: Timestamp) -> (u64, u64) {
        let limit = target.waiting_limit();
        let (now, aged) = self.advance(limit, at);
        let removed = units.min(self.units);
        // Units that are not in the state leave it as it is.
        self.state.credit(&TickCharge { limit, now, by: ClaimId::default(), units: removed });
        self.units -= removed;
        (aged, removed)
    }

    /// Advances the state. Returns the tick by which it counts, and how many units no longer do.
    fn advance(&mut self, limit: &Limit, at: Timestamp) -> (u64, u64) {
        let tick = limit.period().tick();
        if self.is_young {
            if at < self.drains_from {
                return (tick.at(at), 0);
            }
            self.is_young = false;
            let now = self.state.advance(limit, tick.at(self.drains_from)).now;
            self.state.spend(&TickCharge { limit, now, by: ClaimId::default(), units: self.units });
        }
        let now = self.state.advance(limit, tick.at(at)).now;
        let left = self.state.used(limit, now).min(self.units);
        let aged = self.units - left;
        self.units = left;
        (now, aged)
    }
}

impl Waitlist {
    #[cfg(test)]
    pub(super) fn units(&self) -> u64 {
        self.entries.values().map(|entry| entry.waiting.units()).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of the keys' values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest entry began.
    pub(super) fn oldest(&self) -> Option<Steady> {
        self.order.first().map(|(since, _)| *since)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, hash: u128) -> Option<&mut Entry> {
        self.entries.get_mut(&hash)
    }

    /// Inserts an entry for a counter that has none.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.order.insert((entry.since, entry.target.hash));
        self.bytes += entry.target.bytes;
        self.entries.insert(entry.target.hash, entry);
    }

    pub(super) fn remove(&mut self, hash: u128) -> Option<Entry> {
        let entry = self.entries.remove(&hash)?;
        self.bytes -= entry.target.bytes;
        self.order.remove(&(entry.since, hash));
        Some(entry)
    }

    /// Looks for some counters among up to `count` of those from a place on, oldest first. Returns their hashes, and the place
    /// where to look next, if there are more.
    pub(super) fn find(
        &self,
        is_meant: impl Fn(&Key<'_>) -> bool,
        from: Place,
        count: usize,
    ) -> (Vec<u128>, Option<Place>) {
        let mut rest = self.order.range(from..);
        let looked_at = rest.by_ref().take(count).filter_map(|(_, hash)| self.entries.get(hash));
        let meant = looked_at.filter(|entry| is_meant(&entry.target.key())).map(|entry| entry.target.hash).collect();
        (meant, rest.next().copied())
    }

    /// The keys, oldest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.order.iter().filter_map(|(_, hash)| Some(self.entries.get(hash)?.target.key()))
    }

    /// All entries, oldest first.
    pub(super) fn into_entries(mut self) -> impl Iterator<Item = Entry> {
        std::iter::from_fn(move || self.pop_oldest())
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Entry> {
        let (_, hash) = self.order.first().copied()?;
        self.remove(hash)
    }

    /// Ages some entries, a few further ones each time, and removes those without units. Returns how many units no longer
    /// count.
    pub(super) fn age_some(&mut self, count: usize, at: Timestamp) -> u64 {
        let next: Vec<Place> = self.order.range(self.cursor..).take(count + 1).copied().collect();
        self.cursor = if next.len() > count { next[count] } else { Default::default() };
        let mut aged = 0;
        for (_, hash) in next.into_iter().take(count) {
            let Some(entry) = self.entries.get_mut(&hash) else { continue };
            aged += entry.waiting.age(&entry.target, at);
            if entry.waiting.units() == 0 {
                self.remove(hash);
            }
        }
        aged
    }
}

impl<T> Default for WaitingQueue<T> {
    fn default() -> Self {
        WaitingQueue { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T: HasTarget> WaitingQueue<T> {
    pub(super) fn push_back(&mut self, item: T) {
        self.bytes += item.target().bytes;
        self.items.push_back(item);
    }

    pub(super) fn push_front(&mut self, item: T) {
        self.bytes += item.target().bytes;
        self.items.push_front(item);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = self.items.pop_front()?;
        self.bytes -= item.target().bytes;
        Some(item)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.items.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = T> {
        self.items.into_iter()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The bytes of the keys' values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
