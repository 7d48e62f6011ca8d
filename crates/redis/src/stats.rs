//! The traffic statistics of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_store::sharded::TransportStats;

use super::error_reply::ResendReason;

/// The statistics while they are counted.
#[derive(Debug, Default)]
pub(super) struct TransportCounters {
    pub(super) claims: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unsound: AtomicU64,
    resent: [AtomicU64; ResendReason::ALL.len()],
}

impl TransportCounters {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn count_resent(&self, reason: ResendReason) {
        if let Some(counter) = self.resent.get(reason as usize) {
            TransportCounters::add(counter, 1);
        }
    }

    pub(super) fn read(&self) -> TransportStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TransportStats {
            claims: read(&self.claims),
            calls: read(&self.calls),
            batches: read(&self.batches),
            lost: read(&self.lost),
            unsound: read(&self.unsound),
            resent: ResendReason::ALL
                .iter()
                .zip(&self.resent)
                .map(|(reason, counter)| (reason.name(), read(counter)))
                .collect(),
        }
    }
}
