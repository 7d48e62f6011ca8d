//! The rules whose counters are shared by callers and were part of a claim over several locations.
//!
//! Such a claim takes units that it gives back if another part refuses. Meanwhile others may be refused: a refusal by one
//! of these counters says nothing about the time until its wait is over. A caller's own counters are not included: only
//! the caller itself could meet such a moment.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Claim, Key};

/// A set of scopes that never forgets. It may contain others by chance, whose refusals then are not cached.
#[derive(Debug)]
pub(super) struct SharedScopes([AtomicU64; WORDS]);

const WORDS: usize = 64;

impl SharedScopes {
    /// Adds the scopes of a claim over several locations.
    pub(super) fn add(&self, claim: &Claim<'_>) {
        for charge in claim.charges.iter().filter(|charge| charge.key.caller().is_none()) {
            let (word, bits) = place(&charge.key);
            if self.0[word].load(Ordering::Relaxed) & bits != bits {
                self.0[word].fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn contains(&self, key: &Key<'_>) -> bool {
        let (word, bits) = place(key);
        key.caller().is_none() && self.0[word].load(Ordering::Relaxed) & bits == bits
    }
}

impl Default for SharedScopes {
    fn default() -> SharedScopes {
        SharedScopes(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The word of a scope, and two bits in it.
fn place(key: &Key<'_>) -> (usize, u64) {
    let digest = key.scope().digest();
    let bit = |shift: u32| 1 << ((digest >> shift) as u64 % 64);
    ((digest >> 16) as usize % WORDS, bit(32) | bit(48))
}
