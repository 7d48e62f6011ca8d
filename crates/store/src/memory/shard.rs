//! One shard: a table for each type of state, so that no entry is larger than necessary, and the bound on all of
//! them.

use tollgate_core::algorithm::{Bucket, FixedWindow, SlidingWindow};
use tollgate_core::{Algorithm, Charge, ClaimId, CounterState, Limit, Reading, Span, StateSlot, Timestamp};

use super::MemoryStats;
use super::eviction::VictimSearch;
use super::hash::{Fingerprint, KeyHash};
use super::shares::{ScopeNumber, ScopeShares};
use super::table::{CounterTable, OverwrittenTag, SlotTag, SweptCounter};
use super::worth::Worth;

/// The counters of some partitions.
#[derive(Debug)]
pub(super) struct MemoryShard {
    pub(super) buckets: CounterTable<Bucket>,
    pub(super) fixed_windows: CounterTable<FixedWindow>,
    pub(super) sliding_windows: CounterTable<SlidingWindow<[u64; 2]>>,
    /// Sub-windows, logs and holds, which are boxed.
    pub(super) large: CounterTable<CounterState>,
    pub(super) shares: Box<ScopeShares>,
    bounds: ShardBounds,
    /// Places that a claim has reserved for its new counters.
    reserved: usize,
    swept: u64,
    evicted: u64,
    changes: u64,
}

/// The bounds of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardBounds {
    /// The maximum number of counters.
    pub(super) max_keys: usize,
    /// The number of counters of one scope from which on others may replace them.
    pub(super) share: usize,
    /// How long a stale counter is retained while there is room.
    pub(super) grace: Span,
}

/// A counter that is not in a table.
#[derive(Debug)]
pub(super) struct RestoredCounter {
    pub(super) key: Fingerprint,
    /// The digest of its scope.
    pub(super) scope: u64,
    pub(super) worth: Worth,
    pub(super) stale_at: Timestamp,
    pub(super) state: CounterState,
}

/// The number of slots that are swept for each new counter. Enough that a table with stale counters stops growing.
const STEPS: usize = 8;
/// The number of slots of each table that are searched at a time in a full shard.
const STEPS_WHEN_FULL: usize = 256;
/// How often such a search continues while there must be a counter that can be evicted.
const MAX_SEARCHES: usize = 4;

impl MemoryShard {
    pub(super) fn new(bounds: ShardBounds) -> MemoryShard {
        MemoryShard {
            buckets: CounterTable::default(),
            fixed_windows: CounterTable::default(),
            sliding_windows: CounterTable::default(),
            large: CounterTable::default(),
            shares: Box::default(),
            bounds,
            reserved: 0,
            swept: 0,
            evicted: 0,
            changes: 0,
        }
    }

    /// Lends a counter's state. Logs and holds are long, so they are moved and leave a fresh state behind; other
    /// states are copied. Returns false if there is no such counter.
    #[inline]
    pub(super) fn lend(&mut self, key: Fingerprint, limit: &Limit, slot: &mut StateSlot) -> bool {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => lend(&mut self.buckets, key, slot, |it| CounterState::Bucket(*it)),
            Algorithm::FixedWindow => lend(&mut self.fixed_windows, key, slot, |it| CounterState::FixedWindow(*it)),
            Algorithm::SlidingWindow { sub_windows: 1 } => {
                lend(&mut self.sliding_windows, key, slot, |it| CounterState::SlidingWindow(*it));
            }
            Algorithm::SlidingWindow { .. } => lend(&mut self.large, key, slot, |it| it.clone()),
            Algorithm::SlidingLog | Algorithm::Concurrency => lend(&mut self.large, key, slot, std::mem::take),
        }
        slot.index.is_some()
    }

    /// Settles a charge that asks for `Exactly`, and is alone in its claim, on its counter. `None` if there is no such
    /// counter, or if its state is not one of a fixed size.
    #[inline]
    pub(super) fn settle(
        &mut self,
        key: Fingerprint,
        by: ClaimId,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<Reading> {
        let settled = match charge.limit.algorithm() {
            Algorithm::Bucket { .. } => self.buckets.settle(key, by, charge, now),
            Algorithm::FixedWindow => self.fixed_windows.settle(key, by, charge, now),
            Algorithm::SlidingWindow { sub_windows: 1 } => self.sliding_windows.settle(key, by, charge, now),
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog | Algorithm::Concurrency => None,
        }?;
        if let Some(OverwrittenTag { before, worth }) = settled.overwritten {
            self.changes += 1;
            if before.worth.refuses() != worth.refuses() {
                self.shares.turn(before.scope, worth.refuses());
            }
        }
        Some(settled.reading)
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

    /// Takes back the state that a charge was settled on, and writes it if it has changed. There is room for it.
    #[inline]
    pub(super) fn take_back(
        &mut self,
        key: Fingerprint,
        charge: &Charge<'_>,
        reading: &Reading,
        slot: &mut StateSlot,
        now: Timestamp,
    ) {
        if !slot.changed {
            let was_moved = matches!(slot.state, CounterState::SlidingLog(_) | CounterState::Holds(_));
            if was_moved && slot.index.is_some() {
                self.large.put_back(key, slot.index, std::mem::take(&mut slot.state));
            }
            return;
        }
        if matches!(slot.state, CounterState::Fresh) {
            return self.remove(key, slot);
        }
        self.changes += 1;
        let mut tag = SlotTag { worth: Worth::after(charge, reading), ..SlotTag::default() };
        if slot.index.is_none() {
            tag.scope = self.prepare_new(charge, now);
        }
        self.put(key, slot.index, &mut slot.state, slot.stale_at, tag);
    }

    /// Sweeps a few slots for a new counter, and returns the number of its scope.
    #[inline(never)]
    fn prepare_new(&mut self, charge: &Charge<'_>, now: Timestamp) -> ScopeNumber {
        self.sweep(STEPS, now.before(self.bounds.grace), |_, _| {});
        self.shares.number(charge.key.scope().short())
    }

    /// Removes a counter that was reset. Its index does not say in which table it is.
    #[cold]
    fn remove(&mut self, key: Fingerprint, slot: &StateSlot) {
        if slot.index.is_some() {
            self.remove_from_tables(key);
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
        for RestoredCounter { key, scope, worth, stale_at, mut state } in counters {
            let scope = self.shares.number(scope);
            self.put(key, None, &mut state, stale_at, SlotTag { scope, worth });
        }
    }

    #[inline]
    fn put(
        &mut self,
        key: Fingerprint,
        index: Option<u32>,
        state: &mut CounterState,
        stale_at: Timestamp,
        tag: SlotTag,
    ) {
        let before = match state {
            CounterState::Fresh => return,
            CounterState::Bucket(it) => self.buckets.put(key, index, *it, stale_at, tag),
            CounterState::FixedWindow(it) => self.fixed_windows.put(key, index, *it, stale_at, tag),
            CounterState::SlidingWindow(it) => self.sliding_windows.put(key, index, *it, stale_at, tag),
            large => self.large.put(key, index, std::mem::take(large), stale_at, tag),
        };
        let refuses = tag.worth.refuses();
        match before {
            Some(before) if before.worth.refuses() != refuses => self.shares.turn(before.scope, refuses),
            Some(_) => {}
            None => self.shares.add(tag.scope, refuses),
        }
    }

    /// How often a counter was written.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn bounds(&self) -> ShardBounds {
        self.bounds
    }

    pub(super) fn add_to(&self, stats: &mut MemoryStats) {
        stats.keys += self.len();
        stats.swept += self.swept;
        stats.evicted += self.evicted;
    }

    /// The number of counters that can be added without removing one.
    pub(super) fn room(&self) -> usize {
        self.bounds.max_keys.saturating_sub(self.len() + self.reserved)
    }

    /// Reserves the place of a new counter of a scope. If the shard is full, stale counters are removed, or the one of
    /// least worth among those that are found and that the scope may replace, but none of the claim itself. Returns
    /// false if all of them refuse.
    ///
    /// A place that is not used stays free for the next new counter.
    #[cold]
    pub(super) fn reserve(&mut self, scope: u64, claim: &[KeyHash], now: Timestamp) -> bool {
        let has_room = self.room() > 0 || self.make_room(scope, claim, now);
        self.reserved += usize::from(has_room);
        has_room
    }

    /// Ends all reservations.
    pub(super) fn end_reservations(&mut self) {
        self.reserved = 0;
    }

    fn make_room(&mut self, scope: u64, claim: &[KeyHash], now: Timestamp) -> bool {
        let claimant = self.shares.claimant(scope, self.bounds.max_keys, self.bounds.share);
        let mut search = VictimSearch::new(claimant);
        for _ in 0..MAX_SEARCHES {
            self.sweep(STEPS_WHEN_FULL, now, |shares, found| {
                if !claim.iter().any(|hash| hash.key == found.key) {
                    search.consider(shares, found);
                }
            });
            if self.room() > 0 {
                return true;
            }
            if let Some(victim) = search.yielding() {
                return self.evict(victim);
            }
            if !self.shares.has_yielding(&claimant) {
                break;
            }
        }
        match search.refusing() {
            // The guarantee of a scope goes before counters that refuse, if there are no others.
            Some(victim) if claimant.is_below_guarantee() && !self.shares.has_yielding(&claimant) => self.evict(victim),
            _ => false,
        }
    }

    fn evict(&mut self, key: Fingerprint) -> bool {
        let is_gone = self.remove_from_tables(key);
        self.evicted += u64::from(is_gone);
        is_gone
    }

    fn remove_from_tables(&mut self, key: Fingerprint) -> bool {
        let removed = self.buckets.remove(key).or_else(|| self.fixed_windows.remove(key));
        let removed = removed.or_else(|| self.sliding_windows.remove(key)).or_else(|| self.large.remove(key));
        removed.inspect(|tag| self.shares.remove(tag.scope, tag.worth.refuses())).is_some()
    }

    /// Checks the next slots of each table and removes stale counters.
    fn sweep(&mut self, steps: usize, stale: Timestamp, mut live: impl FnMut(&ScopeShares, &SweptCounter)) {
        let MemoryShard { shares, swept, .. } = self;
        let mut visit = |found: SweptCounter| {
            if found.removed {
                *swept += 1;
                shares.remove(found.tag.scope, found.tag.worth.refuses());
            } else {
                live(shares, &found);
            }
        };
        self.buckets.sweep(steps, stale, &mut visit);
        self.fixed_windows.sweep(steps, stale, &mut visit);
        self.sliding_windows.sweep(steps, stale, &mut visit);
        self.large.sweep(steps, stale, &mut visit);
    }

    fn len(&self) -> usize {
        self.buckets.len() + self.fixed_windows.len() + self.sliding_windows.len() + self.large.len()
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
