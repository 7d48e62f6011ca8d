//! Names for claims that have none.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{ClaimId, Request};

/// How many names a thread takes at a time, so that threads rarely meet at the counter.
const BLOCK: u64 = 4096;

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
/// What tells this process's names from those of others.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The name of a request's claim: its own, or a new one.
pub(crate) fn of(request: &Request<'_>) -> ClaimId {
    request.claim.unwrap_or_else(next)
}

/// A name that no other claim of this process has, and by chance none of another.
pub(crate) fn next() -> ClaimId {
    let mut number = NEXT.get();
    if number.is_multiple_of(BLOCK) {
        number = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
    }
    NEXT.set(number + 1);
    ClaimId(u128::from(*PROCESS) << 64 | u128::from(number))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_name_comes_twice() {
        let take = || (0..10_000).map(|_| super::next().0).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(take)).collect();
        let mut seen = HashSet::new();
        for thread in threads {
            for id in thread.join().unwrap() {
                assert!(seen.insert(id));
            }
        }
        assert_eq!(seen.len(), 40_000);
    }
}
