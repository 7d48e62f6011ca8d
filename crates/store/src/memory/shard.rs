//! One shard: a table for each kind of state, so that none is larger than it needs to be, and the bound on them all.

use smallvec::SmallVec;
use tollgate_core::algorithm::{Bucket, FixedWindow, SlidingWindow};
use tollgate_core::{Algorithm, Claim, Limit, Once, Settlement, Slot, Span, State, Timestamp};

use super::hash::{Fingerprint, Print};
use super::once::Records;
use super::table::{Swept, Table};
use super::{MemoryStats, conflict};

/// Counters and records of some partitions.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) buckets: Table<Bucket>,
    pub(super) fixed_windows: Table<FixedWindow>,
    pub(super) sliding_windows: Table<SlidingWindow<[u64; 2]>>,
    /// Sub-windows, logs and holds, which are boxed.
    pub(super) large: Table<State>,
    pub(super) records: Box<Records>,
    max_keys: usize,
    /// How long a stale counter is kept while there is room.
    grace: Span,
    swept: u64,
    evicted: u64,
    changes: u64,
}

/// One counter outside its table.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) key: Fingerprint,
    pub(super) stale_at: Timestamp,
    pub(super) state: State,
}

/// How many slots each new counter sweeps: enough that a table whose counters go stale stops growing.
const STEPS: usize = 8;
/// How many at most when the shard is full, before a live counter goes.
const STEPS_WHEN_FULL: usize = 256;

impl Shard {
    pub(super) fn new(max_keys: usize, max_once: usize, grace: Span) -> Shard {
        Shard {
            buckets: Table::default(),
            fixed_windows: Table::default(),
            sliding_windows: Table::default(),
            large: Table::default(),
            records: Box::new(Records::new(max_once)),
            max_keys,
            grace,
            swept: 0,
            evicted: 0,
            changes: 0,
        }
    }

    /// Lends a counter's state: a copy, but for logs and holds, which are long and leave a fresh one behind.
    pub(super) fn lend(&mut self, key: Fingerprint, limit: &Limit, slots: &mut SmallVec<[Slot; 4]>) {
        let mut slot = Slot::default();
        match limit.algorithm() {
            Algorithm::Bucket { .. } => lend(&mut self.buckets, key, &mut slot, |it| State::Bucket(*it)),
            Algorithm::FixedWindow => lend(&mut self.fixed_windows, key, &mut slot, |it| State::FixedWindow(*it)),
            Algorithm::SlidingWindow { sub_windows: 1 } => {
                lend(&mut self.sliding_windows, key, &mut slot, |it| State::SlidingWindow(*it));
            }
            Algorithm::SlidingWindow { .. } => lend(&mut self.large, key, &mut slot, |it| it.clone()),
            Algorithm::SlidingLog | Algorithm::Concurrency => lend(&mut self.large, key, &mut slot, std::mem::take),
        }
        slots.push(slot);
    }

    /// Has the memory of a counter fetched, and does not wait for it. A claim on several counters fetches all of them at once.
    pub(super) fn touch(&self, key: Fingerprint, limit: &Limit) {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => self.buckets.touch(key),
            Algorithm::FixedWindow => self.fixed_windows.touch(key),
            Algorithm::SlidingWindow { sub_windows: 1 } => self.sliding_windows.touch(key),
            _ => self.large.touch(key),
        }
    }

    /// Takes back what was lent, and keeps it if it has changed.
    pub(super) fn take_back(&mut self, key: Fingerprint, slot: &mut Slot, now: Timestamp) {
        let left_its_place = matches!(slot.state, State::SlidingLog(_) | State::Holds(_)) && slot.place.is_some();
        if !slot.changed && !left_its_place {
            return;
        }
        if matches!(slot.state, State::Fresh) {
            return self.remove(key, slot);
        }
        if slot.place.is_none() {
            self.make_room(now);
        }
        self.changes += u64::from(slot.changed);
        let is_new = self.put(key, slot.place, &mut slot.state, slot.stale_at);
        // Room for another counter of the same claim may have cost this one its place, and now there is one too many.
        if is_new && slot.place.is_some() {
            self.make_room(now);
        }
    }

    /// A counter that was reset leaves nothing behind, if it was there. Its place does not say in which table.
    #[cold]
    fn remove(&mut self, key: Fingerprint, slot: &Slot) {
        if slot.place.is_some() {
            self.buckets.remove(key);
            self.fixed_windows.remove(key);
            self.sliding_windows.remove(key);
            self.large.remove(key);
            self.changes += 1;
        }
    }

    /// Takes in counters that were read back, no more than [`max_keys`](Self::max_keys), at the start.
    pub(super) fn fill(&mut self, counters: Vec<Counter>) {
        let of = |kind: fn(&State) -> bool| counters.iter().filter(|counter| kind(&counter.state)).count();
        // They come in the order of a table. In one that has to grow they would stand in each other's way.
        self.buckets.reserve(of(|state| matches!(state, State::Bucket(_))));
        self.fixed_windows.reserve(of(|state| matches!(state, State::FixedWindow(_))));
        self.sliding_windows.reserve(of(|state| matches!(state, State::SlidingWindow(_))));
        self.large.reserve(of(|state| matches!(state, State::SubWindows(_) | State::SlidingLog(_) | State::Holds(_))));
        for Counter { key, stale_at, mut state } in counters {
            self.put(key, None, &mut state, stale_at);
        }
    }

    #[inline]
    fn put(&mut self, key: Fingerprint, place: Option<u32>, state: &mut State, stale_at: Timestamp) -> bool {
        match state {
            State::Fresh => false,
            State::Bucket(it) => self.buckets.put(key, place, *it, stale_at),
            State::FixedWindow(it) => self.fixed_windows.put(key, place, *it, stale_at),
            State::SlidingWindow(it) => self.sliding_windows.put(key, place, *it, stale_at),
            large => self.large.put(key, place, std::mem::take(large), stale_at),
        }
    }

    /// What was answered before under this name, if that is still on record.
    pub(super) fn replay(
        &mut self,
        print: Print,
        once: &Once<'_>,
        claim: &Claim<'_>,
        now: Timestamp,
    ) -> Option<Settlement> {
        let record = self.records.get(print.key, now)?;
        Some(record.answer(once).unwrap_or_else(|| conflict(claim, now)))
    }

    /// Keeps an answer for those who ask again.
    pub(super) fn remember(&mut self, print: Print, once: &Once<'_>, claim: &Claim<'_>, settlement: &Settlement) {
        self.records.insert(print.key, once, claim, settlement);
        self.changes += 1;
    }

    /// How often a counter or a record was written.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The most counters.
    pub(super) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// How long a stale counter is kept while there is room.
    pub(super) fn grace(&self) -> Span {
        self.grace
    }

    pub(super) fn add_to(&self, stats: &mut MemoryStats) {
        stats.keys += self.len();
        stats.swept += self.swept;
        stats.evicted += self.evicted;
        stats.once += self.records.len();
        stats.once_evicted += self.records.evicted();
    }

    fn len(&self) -> usize {
        self.buckets.len() + self.fixed_windows.len() + self.sliding_windows.len() + self.large.len()
    }

    /// Sweeps a little; and if the shard is full, until there is room. When all that it saw are live, the one that would be
    /// stale soonest goes.
    fn make_room(&mut self, now: Timestamp) {
        let full = self.len() >= self.max_keys;
        let (steps, stale) = if full { (STEPS_WHEN_FULL, now) } else { (STEPS, now.before(self.grace)) };
        let swept = [
            self.buckets.sweep(steps, stale),
            self.fixed_windows.sweep(steps, stale),
            self.sliding_windows.sweep(steps, stale),
            self.large.sweep(steps, stale),
        ];
        self.swept += swept.iter().map(|swept| swept.stale).sum::<u64>();
        if self.len() < self.max_keys {
            return;
        }
        let soonest =
            swept.iter().enumerate().filter_map(|(kind, Swept { soonest, .. })| Some((*soonest.as_ref()?, kind)));
        if let Some(((_, key), kind)) = soonest.min_by_key(|((stale_at, _), _)| *stale_at) {
            match kind {
                0 => self.buckets.remove(key),
                1 => self.fixed_windows.remove(key),
                2 => self.sliding_windows.remove(key),
                _ => self.large.remove(key),
            }
            self.evicted += 1;
        }
    }
}

#[inline(always)]
fn lend<T: Clone + Default>(table: &mut Table<T>, key: Fingerprint, slot: &mut Slot, state: impl Fn(&mut T) -> State) {
    if let Some(place) = table.place(key) {
        let (it, stale_at) = table.at(place);
        slot.state = state(it);
        slot.stale_at = stale_at;
        slot.place = Some(place);
    }
}
