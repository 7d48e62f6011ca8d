//! Entries that wait to be written. Whoever adds one never waits.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use super::Entry;

/// A bounded queue.
#[derive(Debug)]
pub(super) struct Queue {
    shards: [Mutex<Vec<Entry>>; SHARDS],
    /// The shard where the last one went.
    last: AtomicUsize,
    entries: AtomicUsize,
    bytes: AtomicUsize,
    most_entries: usize,
    most_bytes: usize,
    /// How many entries each caller added since it was half full: callers by their hashes.
    crowd: Box<[AtomicU32; CROWD]>,
}

/// Threads that add at the same time seldom meet.
const SHARDS: usize = 16;
/// Callers that are told apart once it is half full.
const CROWD: usize = 1_024;
/// Entries that each of them may add then: one who floods it must not hide all others.
const OF_EACH: u32 = 16;

impl Queue {
    pub(super) fn new(most_entries: usize, most_bytes: usize) -> Queue {
        Queue {
            shards: Default::default(),
            last: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most_entries,
            most_bytes,
            crowd: Box::new([const { AtomicU32::new(0) }; CROWD]),
        }
    }

    /// Whether another entry about this caller would find room. This costs next to nothing where it would not.
    #[inline]
    pub(super) fn has_room(&self, caller: impl FnOnce() -> u64) -> bool {
        let (entries, bytes) = (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        if entries >= self.most_entries || bytes >= self.most_bytes {
            return false;
        }
        if entries < self.most_entries / 2 && bytes < self.most_bytes / 2 {
            return true;
        }
        let added = &self.crowd[caller() as usize % CROWD];
        added.load(Ordering::Relaxed) < OF_EACH && added.fetch_add(1, Ordering::Relaxed) < OF_EACH
    }

    /// Adds an entry. `false` if there is no room, or if others are at all shards at this moment.
    pub(super) fn push(&self, entry: Entry) -> bool {
        let bytes = entry.bytes();
        let entries = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        let all_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let is_in = entries <= self.most_entries && all_bytes <= self.most_bytes && self.put(entry);
        if !is_in {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_in
    }

    fn put(&self, entry: Entry) -> bool {
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

    /// All shards, held by somebody.
    #[cfg(test)]
    pub(super) fn held(&self) -> Vec<std::sync::MutexGuard<'_, Vec<Entry>>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Takes everything, the oldest first.
    pub(super) fn take(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        for shard in &self.shards {
            // Its room goes with it: what is empty takes none.
            let taken = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            all.extend(taken);
        }
        self.entries.fetch_sub(all.len(), Ordering::Relaxed);
        self.bytes.fetch_sub(all.iter().map(Entry::bytes).sum(), Ordering::Relaxed);
        self.crowd.iter().for_each(|added| added.store(0, Ordering::Relaxed));
        all.sort_by_key(|entry| entry.at);
        all
    }
}
