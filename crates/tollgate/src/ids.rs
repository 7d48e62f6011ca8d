//! Identifiers for claims without one.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{ClaimId, Request};

/// How many identifiers a thread reserves at a time, to avoid contention.
const BLOCK: u64 = 4096;

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
/// Distinguishes the identifiers of this process from those of others.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The identifier of a request's claim: its own, or a new one.
#[inline]
pub(crate) fn for_request(request: &Request<'_>) -> ClaimId {
    request.claim.unwrap_or_else(next)
}

/// An identifier that is unique in this process and, with high probability, across processes.
#[inline]
pub(crate) fn next() -> ClaimId {
    let mut number = NEXT.get();
    if number.is_multiple_of(BLOCK) {
        number = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
    }
    NEXT.set(number + 1);
    ClaimId::generated(*PROCESS, number)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_core::ClaimId;

    #[test]
    fn identifiers_are_unique_across_threads() {
        let take = || (0..10_000).map(|_| super::next().0).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(take)).collect();
        let mut seen = HashSet::new();
        for thread in threads {
            for id in thread.join().unwrap() {
                assert!(ClaimId(id).is_generated() && seen.insert(id));
            }
        }
        assert_eq!(seen.len(), 40_000);
    }
}
