//! A compact, fast hash table. A slot has key, staleness and state next to each other, so that a counter outside the
//! cache costs one miss, and a table grows by an eighth, so that few slots are empty.
//!
//! Linear probing; a removal moves later slots back. A slot whose counter has been stale since the epoch is empty:
//! there is no other mark.

#[cfg(test)]
mod tests;

use prefetch_index::prefetch_index;
use tollgate_core::algorithm::AlgorithmState;
use tollgate_core::{Charge, ClaimId, Reading, SettledState, Timestamp, settle_state};

use super::hash::Fingerprint;
use super::shares::ScopeNumber;
use super::worth::Worth;

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
    key: TaggedKey,
    stale_at: Timestamp,
    state: T,
}

/// A key with a tag in its free bits: the scope in the upper 16, the worth in the lower 8.
#[derive(Clone, Copy, Debug, Default)]
struct TaggedKey {
    high: u64,
    low: u64,
}

/// What a table knows of a counter besides its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotTag {
    pub(super) scope: ScopeNumber,
    pub(super) worth: Worth,
}

/// A counter that a sweep came across.
#[derive(Clone, Copy, Debug)]
pub(super) struct SweptCounter {
    pub(super) key: Fingerprint,
    pub(super) tag: SlotTag,
    pub(super) stale_at: Timestamp,
    /// It was stale and has been removed.
    pub(super) removed: bool,
}

/// A charge that was settled in its slot.
pub(super) struct SettledInPlace {
    pub(super) reading: Reading,
    /// What the slot's tag was, and what it is now, if the counter changed.
    pub(super) overwritten: Option<OverwrittenTag>,
}

pub(super) struct OverwrittenTag {
    pub(super) before: SlotTag,
    pub(super) worth: Worth,
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
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, SlotTag, Timestamp, &T)> {
        let live = self.slots.iter().filter(move |slot| slot.stale_at > now);
        live.map(|slot| (slot.key.fingerprint(), slot.key.tag(), slot.stale_at, &slot.state))
    }

    /// The index of a counter. It is valid until a counter is inserted, swept or removed; after that it is a guess.
    pub(super) fn find(&self, key: Fingerprint) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(key.low);
        // A table is never full, so there is an empty slot to end at.
        loop {
            let slot = &self.slots[at];
            if slot.stale_at == EMPTY {
                return None;
            }
            if slot.key.is(key) {
                return u32::try_from(at).ok();
            }
            at = self.next(at);
        }
    }

    /// Loads the slot where a counter should be into the cache, without waiting for it.
    pub(super) fn prefetch(&self, key: Fingerprint) {
        prefetch_index(&self.slots, self.home(key.low));
    }

    /// The state at an index that was just found, and when it will be stale.
    pub(super) fn at(&mut self, index: u32) -> (&mut T, Timestamp) {
        let slot = &mut self.slots[index as usize];
        (&mut slot.state, slot.stale_at)
    }

    /// The same, to read it.
    pub(super) fn peek(&self, index: u32) -> (&T, Timestamp) {
        let slot = &self.slots[index as usize];
        (&slot.state, slot.stale_at)
    }

    /// What else is known of the counter at an index that was just found.
    pub(super) fn tag(&self, index: u32) -> SlotTag {
        self.slots[index as usize].key.tag()
    }

    /// Writes a counter, at its previous index if it is still there. A counter that is there keeps its scope; its
    /// previous tag is returned.
    #[inline]
    pub(super) fn put(
        &mut self,
        key: Fingerprint,
        guess: Option<u32>,
        state: T,
        stale_at: Timestamp,
        tag: SlotTag,
    ) -> Option<SlotTag> {
        let stale_at = stale_at.max(EARLIEST_STALE);
        if let Some(slot) = guess.and_then(|at| self.slots.get_mut(at as usize))
            && slot.key.is(key)
            && slot.stale_at != EMPTY
        {
            return Some(slot.overwrite(state, stale_at, tag.worth));
        }
        self.put_elsewhere(key, state, stale_at, tag)
    }

    #[inline(never)]
    fn put_elsewhere(&mut self, key: Fingerprint, state: T, stale_at: Timestamp, tag: SlotTag) -> Option<SlotTag> {
        match self.find(key) {
            Some(at) => Some(self.slots[at as usize].overwrite(state, stale_at, tag.worth)),
            None => {
                self.insert(TableSlot { key: TaggedKey::new(key, tag), stale_at, state });
                None
            }
        }
    }

    /// Puts back a state that was moved out and has not changed.
    pub(super) fn put_back(&mut self, key: Fingerprint, guess: Option<u32>, state: T) {
        let is_there = |at: &u32| self.slots.get(*at as usize).is_some_and(|it| it.key.is(key) && it.stale_at != EMPTY);
        if let Some(at) = guess.filter(is_there).or_else(|| self.find(key)) {
            self.slots[at as usize].state = state;
        }
    }

    /// Removes a counter and returns its tag.
    pub(super) fn remove(&mut self, key: Fingerprint) -> Option<SlotTag> {
        let at = self.find(key)?;
        let tag = self.tag(at);
        self.remove_at(at as usize);
        Some(tag)
    }

    /// Checks the next slots and removes stale counters.
    pub(super) fn sweep(&mut self, steps: usize, stale: Timestamp, mut visit: impl FnMut(SweptCounter)) {
        for _ in 0..steps.min(self.slots.len()) {
            if self.cursor >= self.slots.len() {
                self.cursor = 0;
            }
            let TableSlot { key, stale_at, .. } = &self.slots[self.cursor];
            let (key, stale_at) = (*key, *stale_at);
            if stale_at == EMPTY {
                self.cursor += 1;
                continue;
            }
            let removed = stale_at <= stale;
            if removed {
                // A later slot may have moved here, so the cursor stays.
                self.remove_at(self.cursor);
            } else {
                self.cursor += 1;
            }
            visit(SweptCounter { key: key.fingerprint(), tag: key.tag(), stale_at, removed });
        }
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
        let mut at = self.home(slot.key.low);
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
            let home = self.home(self.slots[at].key.low);
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

    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

impl<T: AlgorithmState + Copy + Default> CounterTable<T> {
    /// Settles a charge on its counter, if that exists.
    #[inline]
    pub(super) fn settle(
        &mut self,
        key: Fingerprint,
        by: ClaimId,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<SettledInPlace> {
        let at = self.find(key)?;
        let slot = &mut self.slots[at as usize];
        // A copy, so that what does not change is not written.
        let mut state = slot.state;
        let SettledState { reading, changed, stale_at } = settle_state(by, charge, &mut state, now);
        let overwritten = changed.then(|| {
            let worth = Worth::after(charge, &reading);
            OverwrittenTag { before: slot.overwrite(state, stale_at.max(EARLIEST_STALE), worth), worth }
        });
        Some(SettledInPlace { reading, overwritten })
    }
}

impl<T> TableSlot<T> {
    /// Writes another state. The scope stays. Returns the previous tag.
    #[inline(always)]
    fn overwrite(&mut self, state: T, stale_at: Timestamp, worth: Worth) -> SlotTag {
        let before = self.key.tag();
        self.key.high = self.key.high & !u64::from(u8::MAX) | u64::from(worth.bits());
        (self.stale_at, self.state) = (stale_at, state);
        before
    }
}

impl TaggedKey {
    fn new(key: Fingerprint, tag: SlotTag) -> TaggedKey {
        TaggedKey { high: key.high | u64::from(tag.scope.0) << u8::BITS | u64::from(tag.worth.bits()), low: key.low }
    }

    #[inline(always)]
    fn is(self, key: Fingerprint) -> bool {
        self.low == key.low && (self.high ^ key.high) <= Fingerprint::FREE
    }

    fn fingerprint(self) -> Fingerprint {
        Fingerprint::new(self.high, self.low)
    }

    #[inline(always)]
    fn tag(self) -> SlotTag {
        let scope = ScopeNumber((self.high >> u8::BITS) as u16);
        SlotTag { scope, worth: Worth::from_bits(self.high as u8) }
    }
}

/// The earliest staleness of a counter in the table.
const EARLIEST_STALE: Timestamp = Timestamp::from_micros(1);
