//! A hash table that is small and quick: a slot holds key, staleness and state side by side, so that a counter that is not in
//! the cache costs one miss, and tables grow by an eighth, so that little of them is empty.
//!
//! Linear probing, removal by moving later slots back. A slot that has been stale since the epoch is an empty one: there is no
//! other mark.

#[cfg(test)]
mod tests;

use tollgate_core::Timestamp;

use super::hash::Fingerprint;

/// Counters of one kind.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Entry<T>>,
    len: usize,
    /// Where the next sweep goes on.
    cursor: usize,
}

/// What a search looks at comes first and together: most entries do not begin a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry<T> {
    key: Fingerprint,
    stale_at: Timestamp,
    state: T,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    /// Stale counters that it removed.
    pub(super) stale: u64,
    /// The live counter that would be stale soonest.
    pub(super) soonest: Option<(Timestamp, Fingerprint)>,
}

const EMPTY: Timestamp = Timestamp::from_micros(0);
const SMALLEST: usize = 8;

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { slots: Vec::new(), len: 0, cursor: 0 }
    }
}

impl<T: Clone + Default> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The counters that are not stale yet.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, Timestamp, &T)> {
        let live = self.slots.iter().filter(move |entry| entry.stale_at > now);
        live.map(|entry| (entry.key, entry.stale_at, &entry.state))
    }

    /// Where a counter is. That holds until another is inserted, swept or removed; after that it is a guess.
    pub(super) fn place(&self, key: Fingerprint) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        // A table is never full, so there is an empty slot to end at.
        loop {
            let entry = &self.slots[at];
            if entry.stale_at == EMPTY {
                return None;
            }
            if entry.key == key {
                return u32::try_from(at).ok();
            }
            at = self.next(at);
        }
    }

    /// Reads from where a counter should be, for the sake of the cache.
    pub(super) fn touch(&self, key: Fingerprint) {
        if let Some(entry) = self.slots.get(self.home(key)) {
            std::hint::black_box(entry.stale_at);
        }
    }

    /// What is at a place that was just found, and when it will be stale.
    pub(super) fn at(&mut self, place: u32) -> (&mut T, Timestamp) {
        let entry = &mut self.slots[place as usize];
        (&mut entry.state, entry.stale_at)
    }

    /// Writes a counter, at the place where it was if it still is there. Says whether it is one more.
    pub(super) fn put(&mut self, key: Fingerprint, guess: Option<u32>, state: T, stale_at: Timestamp) -> bool {
        let entry = Entry { key, stale_at: stale_at.max(SOON), state };
        let is_there = |at: &u32| self.slots.get(*at as usize).is_some_and(|it| it.key == key && it.stale_at != EMPTY);
        match guess.filter(is_there).or_else(|| self.place(key)) {
            Some(at) => {
                self.slots[at as usize] = entry;
                false
            }
            None => {
                self.insert(entry);
                true
            }
        }
    }

    /// Removes a counter.
    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(at) = self.place(key) {
            self.remove_at(at as usize);
        }
    }

    /// Looks at the next few slots and removes the counters among them that are stale.
    pub(super) fn sweep(&mut self, steps: usize, now: Timestamp) -> Swept {
        let mut swept = Swept::default();
        for _ in 0..steps.min(self.slots.len()) {
            if self.cursor >= self.slots.len() {
                self.cursor = 0;
            }
            let Entry { key, stale_at, .. } = self.slots[self.cursor];
            if stale_at == EMPTY {
                self.cursor += 1;
            } else if stale_at <= now {
                // A later one may have moved here: the cursor stays.
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

    /// Makes room for so many more at once.
    pub(super) fn reserve(&mut self, more: usize) {
        let size = ((self.len + more) * 5).div_ceil(4);
        if more > 0 && size > self.slots.len() {
            self.resize(size.max(SMALLEST));
        }
    }

    fn insert(&mut self, entry: Entry<T>) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() + self.slots.len() / 8).max(SMALLEST));
        }
        let mut at = self.home(entry.key);
        while self.slots[at].stale_at != EMPTY {
            at = self.next(at);
        }
        self.slots[at] = entry;
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
            // It may fill the hole if that is not before its home, as seen going round.
            let from_home = self.distance(home, at);
            if from_home >= self.distance(hole, at) {
                self.slots.swap(hole, at);
                hole = at;
            }
        }
        self.slots[hole] = Entry::default();
    }

    fn resize(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Entry::default(); size]);
        self.len = 0;
        // Where the sweep was. From the start again, the sweeps of a table that keeps growing would never see its end.
        self.cursor = (self.cursor * size).checked_div(old.len()).unwrap_or(0);
        for entry in old {
            if entry.stale_at != EMPTY {
                self.insert(entry);
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

/// The earliest staleness of a counter that is there.
const SOON: Timestamp = Timestamp::from_micros(1);
