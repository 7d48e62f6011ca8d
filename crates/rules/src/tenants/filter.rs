//! A filter that tells from one word whether a caller may have an entry. Most callers have none, so most checks end
//! here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A Bloom filter whose bits for one entry are all in one word. It is sized for a million entries; with more, it has
/// more false positives. A removed entry leaves its bits.
#[derive(Debug, Default)]
pub(super) struct TenantFilter {
    words: OnceLock<Box<[AtomicU64]>>,
}

/// 1 MiB, which fits in a core's cache: a million entries set a third of its bits.
const WORDS: usize = 1 << 17;

impl TenantFilter {
    pub(super) fn add(&self, trace: u64) {
        let words = self.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        words[place(trace)].fetch_or(bits(trace), Ordering::Release);
    }

    /// The word of a hash. It is loaded before it is needed, so that the memory access overlaps with other work.
    #[inline]
    pub(super) fn word(&self, trace: u64) -> FilterWord {
        FilterWord(self.words.get().map_or(0, |words| words[place(trace)].load(Ordering::Acquire)))
    }
}

/// The word with the bits of a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterWord(u64);

impl FilterWord {
    #[inline]
    pub(super) fn may_have(self, trace: u64) -> bool {
        let bits = bits(trace);
        self.0 & bits == bits
    }
}

#[inline]
fn place(trace: u64) -> usize {
    trace as usize % WORDS
}

/// Four bits of a word.
#[inline]
fn bits(trace: u64) -> u64 {
    let from = trace >> 32;
    (0..4).fold(0, |bits, part| bits | 1 << ((from >> (6 * part)) & 63))
}
