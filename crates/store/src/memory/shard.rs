//! One shard: a table for each type of state, so that no entry is larger than necessary, and the bound on all of
//! them.

use smallvec::SmallVec;
use tollgate_core::algorithm::{Bucket, FixedWindow, SlidingWindow};
use tollgate_core::{Algorithm, Claim, CounterState, Limit, Once, Settlement, Span, StateSlot, Timestamp};

use super::MemoryStats;
use super::hash::{Fingerprint, KeyHash};
use super::once::StoredAnswers;
use super::table::{CounterTable, SweepResult};

/// The counters and stored answers of some partitions.
#[derive(Debug)]
pub(super) struct MemoryShard {
    pub(super) buckets: CounterTable<Bucket>,
    pub(super) fixed_windows: CounterTable<FixedWindow>,
    pub(super) sliding_windows: CounterTable<SlidingWindow<[u64; 2]>>,
    /// Sub-windows, logs and holds, which are boxed.
    pub(super) large: CounterTable<CounterState>,
    pub(super) answers: Box<StoredAnswers>,
    max_keys: usize,
    /// How long a stale counter is retained while there is room.
    grace: Span,
    swept: u64,
    evicted: u64,
    changes: u64,
}

/// A counter that is not in a table.
#[derive(Debug)]
pub(super) struct RestoredCounter {
    pub(super) key: Fingerprint,
    pub(super) stale_at: Timestamp,
    pub(super) state: CounterState,
}

/// The number of slots that are swept for each new counter. Enough that a table with stale counters stops growing.
const STEPS: usize = 8;
/// The maximum number of swept slots in a full shard, before a live counter is evicted.
const STEPS_WHEN_FULL: usize = 256;

impl MemoryShard {
    pub(super) fn new(max_keys: usize, max_once: usize, grace: Span) -> MemoryShard {
        MemoryShard {
            buckets: CounterTable::default(),
            fixed_windows: CounterTable::default(),
            sliding_windows: CounterTable::default(),
            large: CounterTable::default(),
            answers: Box::new(StoredAnswers::new(max_once)),
            max_keys,
            grace,
            swept: 0,
            evicted: 0,
            changes: 0,
        }
    }

    /// Lends a counter's state. Logs and holds are long, so they are moved and leave a fresh state behind; other
    /// states are copied.
    pub(super) fn lend(&mut self, key: Fingerprint, limit: &Limit, slots: &mut SmallVec<[StateSlot; 4]>) {
        let mut slot = StateSlot::default();
        match limit.algorithm() {
            Algorithm::Bucket { .. } => lend(&mut self.buckets, key, &mut slot, |it| CounterState::Bucket(*it)),
            Algorithm::FixedWindow => {
                lend(&mut self.fixed_windows, key, &mut slot, |it| CounterState::FixedWindow(*it))
            }
            Algorithm::SlidingWindow { sub_windows: 1 } => {
                lend(&mut self.sliding_windows, key, &mut slot, |it| CounterState::SlidingWindow(*it));
            }
            Algorithm::SlidingWindow { .. } => lend(&mut self.large, key, &mut slot, |it| it.clone()),
            Algorithm::SlidingLog | Algorithm::Concurrency => lend(&mut self.large, key, &mut slot, std::mem::take),
        }
        slots.push(slot);
    }

    /// Loads the memory of a counter into the cache without waiting for it. A claim on several counters loads all of
    /// them at once.
    pub(super) fn prefetch(&self, key: Fingerprint, limit: &Limit) {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => self.buckets.prefetch(key),
            Algorithm::FixedWindow => self.fixed_windows.prefetch(key),
            Algorithm::SlidingWindow { sub_windows: 1 } => self.sliding_windows.prefetch(key),
            _ => self.large.prefetch(key),
        }
    }

    /// Takes back a state and writes it if it has changed.
    pub(super) fn take_back(&mut self, key: Fingerprint, slot: &mut StateSlot, now: Timestamp) {
        let was_moved =
            matches!(slot.state, CounterState::SlidingLog(_) | CounterState::Holds(_)) && slot.index.is_some();
        if !slot.changed && !was_moved {
            return;
        }
        if matches!(slot.state, CounterState::Fresh) {
            return self.remove(key, slot);
        }
        if slot.index.is_none() {
            self.make_room(now);
        }
        self.changes += u64::from(slot.changed);
        let is_new = self.put(key, slot.index, &mut slot.state, slot.stale_at);
        // Making room for another counter of the same claim may have evicted this one, and now there is one too many.
        if is_new && slot.index.is_some() {
            self.make_room(now);
        }
    }

    /// Removes a counter that was reset. Its index does not say in which table it is.
    #[cold]
    fn remove(&mut self, key: Fingerprint, slot: &StateSlot) {
        if slot.index.is_some() {
            self.buckets.remove(key);
            self.fixed_windows.remove(key);
            self.sliding_windows.remove(key);
            self.large.remove(key);
            self.changes += 1;
        }
    }

    /// Adds restored counters, at most [`max_keys`](Self::max_keys), at the start.
    pub(super) fn fill(&mut self, counters: Vec<RestoredCounter>) {
        let of = |kind: fn(&CounterState) -> bool| counters.iter().filter(|counter| kind(&counter.state)).count();
        // The counters come in the order of a table. In a table that has to grow they would collide.
        self.buckets.reserve(of(|state| matches!(state, CounterState::Bucket(_))));
        self.fixed_windows.reserve(of(|state| matches!(state, CounterState::FixedWindow(_))));
        self.sliding_windows.reserve(of(|state| matches!(state, CounterState::SlidingWindow(_))));
        self.large.reserve(of(|state| {
            matches!(state, CounterState::SubWindows(_) | CounterState::SlidingLog(_) | CounterState::Holds(_))
        }));
        for RestoredCounter { key, stale_at, mut state } in counters {
            self.put(key, None, &mut state, stale_at);
        }
    }

    #[inline]
    fn put(&mut self, key: Fingerprint, index: Option<u32>, state: &mut CounterState, stale_at: Timestamp) -> bool {
        match state {
            CounterState::Fresh => false,
            CounterState::Bucket(it) => self.buckets.put(key, index, *it, stale_at),
            CounterState::FixedWindow(it) => self.fixed_windows.put(key, index, *it, stale_at),
            CounterState::SlidingWindow(it) => self.sliding_windows.put(key, index, *it, stale_at),
            large => self.large.put(key, index, std::mem::take(large), stale_at),
        }
    }

    /// The stored answer under this key, if it has not expired.
    pub(super) fn replay(
        &mut self,
        hash: KeyHash,
        once: &Once<'_>,
        claim: &Claim<'_>,
        now: Timestamp,
    ) -> Option<Settlement> {
        let answer = self.answers.get(hash.key, now)?;
        Some(answer.replay(once).unwrap_or_else(|| Settlement::conflict(claim, now)))
    }

    /// Stores an answer for repetitions of the claim.
    pub(super) fn record_answer(&mut self, hash: KeyHash, once: &Once<'_>, claim: &Claim<'_>, settlement: &Settlement) {
        if settlement.needs_record(claim) {
            self.answers.insert(hash.key, once, claim, settlement);
        }
        self.changes += 1;
    }

    /// How often a counter or an answer was written.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The maximum number of counters.
    pub(super) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// How long a stale counter is retained while there is room.
    pub(super) fn grace(&self) -> Span {
        self.grace
    }

    pub(super) fn add_to(&self, stats: &mut MemoryStats) {
        stats.keys += self.len();
        stats.swept += self.swept;
        stats.evicted += self.evicted;
        stats.once += self.answers.len();
        stats.once_evicted += self.answers.evicted();
    }

    fn len(&self) -> usize {
        self.buckets.len() + self.fixed_windows.len() + self.sliding_windows.len() + self.large.len()
    }

    /// Sweeps a few slots; if the shard is full, until there is room. If all of them are live, evicts the counter
    /// that would be stale soonest.
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
            swept.iter().enumerate().filter_map(|(kind, SweepResult { soonest, .. })| Some((*soonest.as_ref()?, kind)));
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
fn lend<T: Clone + Default>(
    table: &mut CounterTable<T>,
    key: Fingerprint,
    slot: &mut StateSlot,
    state: impl Fn(&mut T) -> CounterState,
) {
    if let Some(index) = table.find(key) {
        let (it, stale_at) = table.at(index);
        slot.state = state(it);
        slot.stale_at = stale_at;
        slot.index = Some(index);
    }
}
