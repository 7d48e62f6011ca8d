//! Whether a caller may have an entry, by a look at one word: most have none, and their absence is what most checks ask for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A Bloom filter whose bits for one entry are all in one word. It has room for a million entries; past that it says "perhaps" more
/// often. An entry that is removed leaves its bits.
#[derive(Debug, Default)]
pub(super) struct Filter {
    words: OnceLock<Box<[AtomicU64]>>,
}

/// 1 MiB, which a core's own cache may hold: a million entries set a third of its bits.
const WORDS: usize = 1 << 17;

impl Filter {
    pub(super) fn add(&self, trace: u64) {
        let words = self.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        words[place(trace)].fetch_or(bits(trace), Ordering::Release);
    }

    /// What is known of a trace. It is asked for before it is needed, so that it comes from memory meanwhile.
    #[inline]
    pub(super) fn word(&self, trace: u64) -> Word {
        Word(self.words.get().map_or(0, |words| words[place(trace)].load(Ordering::Acquire)))
    }
}

/// The word that a trace's bits are in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word(u64);

impl Word {
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

/// Four of a word's bits.
#[inline]
fn bits(trace: u64) -> u64 {
    let from = trace >> 32;
    (0..4).fold(0, |bits, part| bits | 1 << ((from >> (6 * part)) & 63))
}
