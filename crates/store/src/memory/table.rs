//! A compact, fast hash table. A slot has key, staleness and state next to each other, so that a counter outside the
//! cache costs one miss, and a table grows by an eighth, so that few slots are empty.
//!
//! Linear probing; a removal moves later slots back. A slot whose counter has been stale since the epoch is empty:
//! there is no other mark.

#[cfg(test)]
mod tests;

use tollgate_core::Timestamp;

use super::hash::Fingerprint;

/// Counters with one type of state.
#[derive(Debug)]
pub(super) struct CounterTable<T> {
    slots: Vec<TableSlot<T>>,
    len: usize,
    /// Where the next sweep continues.
    cursor: usize,
}

/// The fields that a search reads come first and together, because most slots do not begin a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct TableSlot<T> {
    key: Fingerprint,
    stale_at: Timestamp,
    state: T,
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SweepResult {
    /// The number of stale counters that were removed.
    pub(super) stale: u64,
    /// The live counter that would be stale soonest.
    pub(super) soonest: Option<(Timestamp, Fingerprint)>,
}

const EMPTY: Timestamp = Timestamp::from_micros(0);
const MIN_SLOTS: usize = 8;

impl<T> Default for CounterTable<T> {
    fn default() -> CounterTable<T> {
        CounterTable { slots: Vec::new(), len: 0, cursor: 0 }
    }
}

impl<T: Clone + Default> CounterTable<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The counters that are not stale.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, Timestamp, &T)> {
        let live = self.slots.iter().filter(move |slot| slot.stale_at > now);
        live.map(|slot| (slot.key, slot.stale_at, &slot.state))
    }

    /// The index of a counter. It is valid until a counter is inserted, swept or removed; after that it is a guess.
    pub(super) fn find(&self, key: Fingerprint) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        // A table is never full, so there is an empty slot to end at.
        loop {
            let slot = &self.slots[at];
            if slot.stale_at == EMPTY {
                return None;
            }
            if slot.key == key {
                return u32::try_from(at).ok();
            }
            at = self.next(at);
        }
    }

    /// Reads the slot where a counter should be, to load it into the cache.
    pub(super) fn prefetch(&self, key: Fingerprint) {
        if let Some(slot) = self.slots.get(self.home(key)) {
            std::hint::black_box(slot.stale_at);
        }
    }

    /// The state at an index that was just found, and when it will be stale.
    pub(super) fn at(&mut self, index: u32) -> (&mut T, Timestamp) {
        let slot = &mut self.slots[index as usize];
        (&mut slot.state, slot.stale_at)
    }

    /// Writes a counter, at its previous index if it is still there. Returns whether it is a new one.
    pub(super) fn put(&mut self, key: Fingerprint, guess: Option<u32>, state: T, stale_at: Timestamp) -> bool {
        let slot = TableSlot { key, stale_at: stale_at.max(EARLIEST_STALE), state };
        let is_there = |at: &u32| self.slots.get(*at as usize).is_some_and(|it| it.key == key && it.stale_at != EMPTY);
        match guess.filter(is_there).or_else(|| self.find(key)) {
            Some(at) => {
                self.slots[at as usize] = slot;
                false
            }
            None => {
                self.insert(slot);
                true
            }
        }
    }

    /// Removes a counter.
    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(at) = self.find(key) {
            self.remove_at(at as usize);
        }
    }

    /// Checks the next slots and removes stale counters.
    pub(super) fn sweep(&mut self, steps: usize, now: Timestamp) -> SweepResult {
        let mut swept = SweepResult::default();
        for _ in 0..steps.min(self.slots.len()) {
            if self.cursor >= self.slots.len() {
                self.cursor = 0;
            }
            let TableSlot { key, stale_at, .. } = self.slots[self.cursor];
            if stale_at == EMPTY {
                self.cursor += 1;
            } else if stale_at <= now {
                // A later slot may have moved here, so the cursor stays.
                self.remove_at(self.cursor);
                swept.stale += 1;
            } else {
                if swept.soonest.is_none_or(|(soonest, _)| stale_at < soonest) {
                    swept.soonest = Some((stale_at, key));
                }
                self.cursor += 1;
            }
        }
        swept
    }

    /// Makes room for this number of further counters.
    pub(super) fn reserve(&mut self, more: usize) {
        let size = ((self.len + more) * 5).div_ceil(4);
        if more > 0 && size > self.slots.len() {
            self.resize(size.max(MIN_SLOTS));
        }
    }

    fn insert(&mut self, slot: TableSlot<T>) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() + self.slots.len() / 8).max(MIN_SLOTS));
        }
        let mut at = self.home(slot.key);
        while self.slots[at].stale_at != EMPTY {
            at = self.next(at);
        }
        self.slots[at] = slot;
        self.len += 1;
    }

    fn remove_at(&mut self, mut hole: usize) {
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            if self.slots[at].stale_at == EMPTY {
                break;
            }
            let home = self.home(self.slots[at].key);
            // The slot may fill the hole if the hole is not before its home, in cyclic order.
            let from_home = self.distance(home, at);
            if from_home >= self.distance(hole, at) {
                self.slots.swap(hole, at);
                hole = at;
            }
        }
        self.slots[hole] = TableSlot::default();
    }

    fn resize(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.slots, vec![TableSlot::default(); size]);
        self.len = 0;
        // The cursor stays in proportion. From the start again, the sweeps of a table that keeps growing would never
        // reach its end.
        self.cursor = (self.cursor * size).checked_div(old.len()).unwrap_or(0);
        for slot in old {
            if slot.stale_at != EMPTY {
                self.insert(slot);
            }
        }
    }

    fn home(&self, key: Fingerprint) -> usize {
        ((u128::from(key.low) * self.slots.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

/// The earliest staleness of a counter in the table.
const EARLIEST_STALE: Timestamp = Timestamp::from_micros(1);
