//! Refusals that repeat. Of one caller and rule the first ones in a minute are entries of their own; the others become one entry with
//! their number, so that a caller that is refused again and again does not fill the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Span, Timestamp};

use super::DecisionEntry;

/// What an entry stands for, if it is more than one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// The number of decisions.
    pub count: u64,
    /// The time of the last one. The entry has the time of the first one.
    pub until: Timestamp,
}

/// What becomes of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is an entry of its own.
    Single,
    /// It is the first one that is summarized, in this slot: its entry stands for all that follow.
    First(usize),
    /// It is counted in the entry of another.
    Counted,
}

/// Counts refusals by caller and rule, without locks.
#[derive(Debug)]
pub(super) struct RepeatCounter {
    slots: Box<[Slot]>,
    /// Refusals of a caller and rule that are entries of their own.
    max_single: u64,
    /// When the current minute began.
    began_at: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Identifies the caller and the rule; [`FREE`] if there is none.
    digest: AtomicU64,
    seen: AtomicU64,
    last_at: AtomicU64,
    /// The entry that stands for all after the first ones, and its digest. Locked by the one decision that stores it, and by readers.
    summary: Mutex<Option<(u64, Box<DecisionEntry>)>>,
}

/// Pairs of a caller and a rule that are counted at the same time. Others are not summarized: the bounds of the queue apply to them.
pub const MAX_REPEATING: usize = 1_024;
/// The time that a summary covers.
pub const SUMMARY_INTERVAL: Span = Span::from_secs(60);

const FREE: u64 = 0;

impl RepeatCounter {
    pub(super) fn new(max_single: u64) -> RepeatCounter {
        let slots = (0..MAX_REPEATING).map(|_| Slot::default()).collect();
        RepeatCounter { slots, max_single, began_at: AtomicU64::new(0) }
    }

    /// Counts a refusal.
    pub(super) fn count(&self, digest: u64, at: Timestamp) -> Repeat {
        let digest = digest.max(1);
        let Some(index) = self.find(digest) else { return Repeat::Single };
        let slot = &self.slots[index];
        let seen = slot.seen.fetch_add(1, Ordering::Relaxed);
        if seen < self.max_single {
            return Repeat::Single;
        }
        slot.last_at.fetch_max(at.as_micros(), Ordering::Relaxed);
        if seen == self.max_single { Repeat::First(index) } else { Repeat::Counted }
    }

    /// The slot of a digest. `None` if others have the slots that it could have.
    fn find(&self, digest: u64) -> Option<usize> {
        [digest, digest >> 32].into_iter().map(|hash| hash as usize % MAX_REPEATING).find(|index| {
            let claimed =
                self.slots[*index].digest.compare_exchange(FREE, digest, Ordering::Relaxed, Ordering::Relaxed);
            claimed.is_ok() || claimed == Err(digest)
        })
    }

    /// Stores the entry of the first refusal that is summarized.
    pub(super) fn store(&self, index: usize, digest: u64, entry: DecisionEntry) {
        *self.slots[index].summary() = Some((digest.max(1), Box::new(entry)));
    }

    /// The summaries of the current minute so far.
    pub(super) fn current(&self) -> Vec<DecisionEntry> {
        let summary = |slot: &Slot| {
            let (digest, entry) = slot.summary().clone()?;
            let seen =
                if slot.digest.load(Ordering::Relaxed) == digest { slot.seen.load(Ordering::Relaxed) } else { 0 };
            Some(self.summarize(*entry, seen, slot))
        };
        self.slots.iter().filter_map(summary).collect()
    }

    /// Ends the minute, if it is over, and returns its summaries.
    pub(super) fn take(&self, now: Timestamp) -> Vec<DecisionEntry> {
        let began_at = Timestamp::from_micros(self.began_at.load(Ordering::Relaxed));
        if now < began_at.after(SUMMARY_INTERVAL) && now >= began_at {
            return Vec::new();
        }
        self.began_at.store(now.as_micros(), Ordering::Relaxed);
        self.take_all()
    }

    /// Ends the minute and returns its summaries.
    pub(super) fn take_all(&self) -> Vec<DecisionEntry> {
        let summary = |slot: &Slot| {
            // A decision that is counted meanwhile may be missing in the number, or be in the next one.
            let digest = slot.digest.load(Ordering::Relaxed);
            let stored = slot.summary().take();
            let seen = slot.seen.swap(0, Ordering::Relaxed);
            let taken = stored.map(|(of, entry)| self.summarize(*entry, if of == digest { seen } else { 0 }, slot));
            slot.last_at.store(0, Ordering::Relaxed);
            slot.digest.store(FREE, Ordering::Relaxed);
            taken
        };
        self.slots.iter().filter_map(summary).collect()
    }

    fn summarize(&self, mut entry: DecisionEntry, seen: u64, slot: &Slot) -> DecisionEntry {
        let count = seen.saturating_sub(self.max_single).max(1);
        if count > 1 {
            let until = Timestamp::from_micros(slot.last_at.load(Ordering::Relaxed)).max(entry.at);
            entry.repetition = Some(Repetition { count, until });
        }
        entry
    }
}

impl Slot {
    fn summary(&self) -> MutexGuard<'_, Option<(u64, Box<DecisionEntry>)>> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
