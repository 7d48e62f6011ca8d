//! Callers with so many counters that some of them have values of their own.
//!
//! A claim of such a caller must declare further keys, which costs Redis a little. Others need not. This remembers who
//! does; if it is wrong, a claim declares keys that it does not need, or is sent twice.

use std::sync::atomic::{AtomicU64, Ordering};

/// The hashes of such callers. One that is forgotten, because another took its place, is found again.
#[derive(Debug)]
pub(super) struct SpilledCallers(Box<[AtomicU64]>);

/// The maximum number of remembered callers.
const MAX_SPILLED: usize = 4_096;

impl Default for SpilledCallers {
    fn default() -> SpilledCallers {
        SpilledCallers((0..MAX_SPILLED).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SpilledCallers {
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.place(hash).is_some_and(|place| place.load(Ordering::Relaxed) == hash)
    }

    pub(super) fn insert(&self, hash: u64) {
        if let Some(place) = self.place(hash) {
            place.store(hash, Ordering::Relaxed);
        }
    }

    fn place(&self, hash: u64) -> Option<&AtomicU64> {
        self.0.get((hash % self.0.len().max(1) as u64) as usize)
    }
}
