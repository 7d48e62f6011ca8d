//! What a store of this kind has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::Reason;

/// What was done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisStats {
    /// Claims that were sent, each as often as it was.
    pub claims: u64,
    /// Calls of the script: one for all claims of a batch on one node, in a cluster one for each slot.
    pub calls: u64,
    /// Round trips.
    pub batches: u64,
    /// Connections that were lost.
    pub lost: u64,
    /// Values in Redis that were not what they should be, and counted as fresh.
    pub unsound: u64,
    /// Claims that were sent again, by the answer that proved that they did not run.
    pub resent: Vec<(&'static str, u64)>,
}

/// The same, while it is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) claims: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unsound: AtomicU64,
    resent: [AtomicU64; Reason::ALL.len()],
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: usize) {
        counter.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(super) fn resend(&self, reason: Reason) {
        if let Some(counter) = self.resent.get(reason as usize) {
            Counters::add(counter, 1);
        }
    }

    pub(super) fn read(&self) -> RedisStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RedisStats {
            claims: read(&self.claims),
            calls: read(&self.calls),
            batches: read(&self.batches),
            lost: read(&self.lost),
            unsound: read(&self.unsound),
            resent: Reason::ALL
                .iter()
                .zip(&self.resent)
                .map(|(reason, counter)| (reason.name(), read(counter)))
                .collect(),
        }
    }
}
