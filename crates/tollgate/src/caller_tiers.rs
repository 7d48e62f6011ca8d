//! The tiers that callers were last seen in.
//!
//! Where requests name the tier, nothing else knows it: a caller's counters could not be read without its last request.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Span, Timestamp};

/// A bounded memory of callers' tiers. A caller may displace another one.
#[derive(Debug, Default)]
pub(crate) struct CallerTiers {
    /// Allocated with the first caller. Each slot has a part of the caller's hash, the tier and the minute.
    slots: OnceLock<Box<[AtomicU64]>>,
    secret: RandomState,
}

/// The number of slots: 512 KiB.
const SLOTS: usize = 65_536;
const TIER_BITS: u32 = 16;
const MINUTE_BITS: u32 = 24;
const MINUTE: u64 = 60_000_000;
/// Marks a slot as used.
const USED: u64 = 1 << 63;

impl CallerTiers {
    /// Remembers that a caller of the domain was in this tier.
    pub(crate) fn record(&self, domain: usize, caller: &str, tier: u16, at: Timestamp) {
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let (slot, tag) = self.place(domain, caller);
        let value = tag | (u64::from(tier) << MINUTE_BITS) | minute(at);
        // Nearly always it is the same: a read leaves the cache line shared.
        if slots[slot].load(Ordering::Relaxed) != value {
            slots[slot].store(value, Ordering::Relaxed);
        }
    }

    /// The tier in which a caller was last seen, and how long ago, in whole minutes.
    pub(crate) fn last(&self, domain: usize, caller: &str, now: Timestamp) -> Option<(u16, Span)> {
        let (slot, tag) = self.place(domain, caller);
        let value = self.slots.get()?[slot].load(Ordering::Relaxed);
        if value >> (TIER_BITS + MINUTE_BITS) != tag >> (TIER_BITS + MINUTE_BITS) {
            return None;
        }
        let ago = minute(now).saturating_sub(value & ((1 << MINUTE_BITS) - 1));
        Some(((value >> MINUTE_BITS) as u16, Span::from_micros(ago * MINUTE)))
    }

    /// The slot of a caller, and the part of its hash that is stored there.
    fn place(&self, domain: usize, caller: &str) -> (usize, u64) {
        let hash = self.secret.hash_one((domain, caller));
        let tag = (USED | hash) >> (TIER_BITS + MINUTE_BITS) << (TIER_BITS + MINUTE_BITS);
        (hash as usize % SLOTS, tag)
    }
}

fn minute(at: Timestamp) -> u64 {
    (at.as_micros() / MINUTE) & ((1 << MINUTE_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_767_225_600);

    #[test]
    fn the_last_tier_of_each_caller_is_remembered() {
        let tiers = CallerTiers::default();
        assert_eq!(tiers.last(0, "ada", START), None);
        tiers.record(0, "ada", 2, START);
        tiers.record(1, "ada", 0, START);
        assert_eq!(tiers.last(0, "ada", START), Some((2, Span::from_secs(0))));
        assert_eq!(tiers.last(1, "ada", START.after(Span::from_secs(150))), Some((0, Span::from_secs(120))));
        assert_eq!(tiers.last(0, "bob", START), None);
        tiers.record(0, "ada", u16::MAX, START);
        assert_eq!(tiers.last(0, "ada", START), Some((u16::MAX, Span::from_secs(0))));
        assert_eq!(tiers.last(0, "ada", START.before(Span::from_secs(90))), Some((u16::MAX, Span::from_secs(0))));
    }

    #[test]
    fn callers_displace_each_other_and_are_never_confused() {
        let tiers = CallerTiers::default();
        for number in 0..200_000u32 {
            tiers.record(0, &number.to_string(), (number % 7) as u16, START);
        }
        let found: Vec<u32> =
            (0..200_000).filter(|number: &u32| tiers.last(0, &number.to_string(), START).is_some()).collect();
        assert!(found.len() > SLOTS / 2 && found.len() <= SLOTS, "{}", found.len());
        for number in found {
            assert_eq!(tiers.last(0, &number.to_string(), START).map(|(tier, _)| tier), Some((number % 7) as u16));
        }
    }
}
