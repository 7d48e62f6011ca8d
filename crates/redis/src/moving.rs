//! Slots that are being moved to another node, as far as replies say so.
//!
//! While a slot is moved, a node refuses a call whose keys are on two nodes, or of which some do not exist yet. Claims
//! on such a slot are settled one key at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Span, Timestamp};

/// The slots that are being moved.
#[derive(Debug, Default)]
pub(super) struct MovingSlots {
    /// Whether there are any. Claims usually read only this.
    any: AtomicBool,
    /// When the last reply said so. At most one entry for each slot of a cluster.
    seen: Mutex<HashMap<u16, Timestamp>>,
}

/// How long after the last such reply a slot is taken to be in one place again. If it is not, the next reply says so.
const QUIET: Span = Span::from_secs(10);

impl MovingSlots {
    pub(super) fn contains(&self, slot: u16, now: impl FnOnce() -> Timestamp) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let (mut seen, now) = (self.seen(), now());
        seen.retain(|_, at| *at <= now && now.since(*at) < QUIET);
        self.any.store(!seen.is_empty(), Ordering::Release);
        seen.contains_key(&slot)
    }

    /// A reply said that the keys of a call are on two nodes.
    pub(super) fn insert(&self, slot: u16, now: Timestamp) {
        let mut seen = self.seen();
        seen.insert(slot, now);
        self.any.store(true, Ordering::Release);
    }

    /// A reply said that a key is on the other node already: if the slot is known to be moving, it still is.
    pub(super) fn renew(&self, slot: u16, now: Timestamp) {
        if self.any.load(Ordering::Acquire)
            && let Some(at) = self.seen().get_mut(&slot)
        {
            *at = now;
        }
    }

    /// The slot has arrived.
    pub(super) fn remove(&self, slot: u16) {
        if self.any.load(Ordering::Acquire) {
            self.seen().remove(&slot);
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<u16, Timestamp>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_moving_until_replies_no_longer_say_so() {
        let (slots, start) = (MovingSlots::default(), Timestamp::from_secs(1_000));
        let after = |seconds| move || start.after(Span::from_secs(seconds));
        slots.renew(7, start);
        assert!(!slots.contains(7, || start));
        slots.insert(7, start);
        assert!(slots.contains(7, after(9)) && !slots.contains(8, after(9)));
        slots.renew(7, after(9)());
        assert!(slots.contains(7, after(18)));
        assert!(!slots.contains(7, after(19)));
        slots.insert(7, start);
        slots.remove(7);
        assert!(!slots.contains(7, || start));
    }
}
