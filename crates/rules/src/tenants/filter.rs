//! Whether a caller may have an entry, by a look at one word: most have none, and their absence is what most checks ask for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A Bloom filter whose bits for one entry are all in one word. It has room for a million entries; past that it says "perhaps" more
/// often. An entry that is removed leaves its bits.
#[derive(Debug, Default)]
pub(super) struct Filter {
    words: OnceLock<Box<[AtomicU64]>>,
}

/// 2 MiB.
const WORDS: usize = 1 << 18;

impl Filter {
    pub(super) fn add(&self, identity: u64) {
        let words = self.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        words[place(identity)].fetch_or(bits(identity), Ordering::Release);
    }

    #[inline]
    pub(super) fn may_have(&self, identity: u64) -> bool {
        let Some(words) = self.words.get() else { return false };
        let bits = bits(identity);
        words[place(identity)].load(Ordering::Acquire) & bits == bits
    }
}

fn place(identity: u64) -> usize {
    (identity >> 8) as usize % WORDS
}

/// Four of a word's bits.
fn bits(identity: u64) -> u64 {
    let from = identity >> 26;
    (0..4).fold(0, |bits, part| bits | 1 << ((from >> (6 * part)) & 63))
}
