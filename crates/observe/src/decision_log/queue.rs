//! A bounded queue of entries. Adding to it never blocks.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use super::DecisionEntry;

/// Entries that wait to be written.
#[derive(Debug)]
pub(super) struct EntryQueue {
    shards: [Mutex<Vec<DecisionEntry>>; SHARDS],
    /// The shard of the last push.
    last: AtomicUsize,
    entries: AtomicUsize,
    bytes: AtomicUsize,
    max_entries: usize,
    max_bytes: usize,
    /// Entries that each caller added since the queue was half full, by the callers' hashes.
    per_caller: Box<[AtomicU32; CALLER_SLOTS]>,
}

/// Enough that concurrent pushes seldom contend.
const SHARDS: usize = 16;
/// Slots for callers once the queue is half full.
const CALLER_SLOTS: usize = 1_024;
/// Entries per caller once the queue is half full: one caller's flood must not crowd out all others.
const MAX_PER_CALLER: u32 = 16;

impl EntryQueue {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> EntryQueue {
        EntryQueue {
            shards: Default::default(),
            last: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_entries,
            max_bytes,
            per_caller: Box::new([const { AtomicU32::new(0) }; CALLER_SLOTS]),
        }
    }

    /// Whether another entry about this caller would find room. Cheap when there is none.
    #[inline]
    pub(super) fn has_room(&self, caller: impl FnOnce() -> u64) -> bool {
        let (entries, bytes) = (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        if entries >= self.max_entries || bytes >= self.max_bytes {
            return false;
        }
        if entries < self.max_entries / 2 && bytes < self.max_bytes / 2 {
            return true;
        }
        let added = &self.per_caller[caller() as usize % CALLER_SLOTS];
        added.load(Ordering::Relaxed) < MAX_PER_CALLER && added.fetch_add(1, Ordering::Relaxed) < MAX_PER_CALLER
    }

    /// Adds an entry. Returns `false` if there is no room, or if all shards are locked.
    pub(super) fn push(&self, entry: DecisionEntry) -> bool {
        let bytes = entry.bytes();
        let entries = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        let all_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let is_in = entries <= self.max_entries && all_bytes <= self.max_bytes && self.insert(entry);
        if !is_in {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_in
    }

    fn insert(&self, entry: DecisionEntry) -> bool {
        let begin = self.last.fetch_add(1, Ordering::Relaxed);
        for at in 0..SHARDS {
            let mut shard = match self.shards[begin.wrapping_add(at) % SHARDS].try_lock() {
                Ok(shard) => shard,
                Err(TryLockError::Poisoned(shard)) => shard.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            shard.push(entry);
            return true;
        }
        false
    }

    /// Locks all shards.
    #[cfg(test)]
    pub(super) fn lock_all(&self) -> Vec<std::sync::MutexGuard<'_, Vec<DecisionEntry>>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Takes all entries, oldest first.
    pub(super) fn take(&self) -> Vec<DecisionEntry> {
        let mut all = Vec::new();
        for shard in &self.shards {
            // The capacity goes too: an empty queue takes no memory.
            let taken = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            all.extend(taken);
        }
        self.entries.fetch_sub(all.len(), Ordering::Relaxed);
        self.bytes.fetch_sub(all.iter().map(DecisionEntry::bytes).sum(), Ordering::Relaxed);
        self.per_caller.iter().for_each(|added| added.store(0, Ordering::Relaxed));
        all.sort_by_key(|entry| entry.at);
        all
    }
}
