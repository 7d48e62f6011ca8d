//! Sampling of decisions and callers.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

/// A sample rate in basis points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate(u16);

/// Basis points of one.
const MAX_BPS: u16 = 10_000;

/// Not a secret: every server samples the same callers.
const KEY: u64 = 0x7477_6c67_2d77_6879;
/// An odd number without a pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    /// Random per thread, so that threads do not sample in step.
    static SAMPLER_STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(KEY));
}

impl SampleRate {
    /// Samples nothing.
    pub const NONE: SampleRate = SampleRate(0);
    /// Samples everything.
    pub const ALL: SampleRate = SampleRate(MAX_BPS);

    /// A rate in basis points; more than 10,000 is everything.
    pub const fn from_bps(bps: u16) -> SampleRate {
        SampleRate(if bps < MAX_BPS { bps } else { MAX_BPS })
    }

    /// The rate in basis points.
    pub fn bps(self) -> u16 {
        self.0
    }

    /// Whether this decision is sampled, at random.
    #[inline]
    pub(super) fn is_sampled(self) -> bool {
        match self.0 {
            0 => false,
            MAX_BPS => true,
            _ => self.contains(random()),
        }
    }

    /// Whether the item with this hash is sampled.
    #[inline]
    pub(super) fn contains(self, hash: u64) -> bool {
        // The high half of the product is a number below 10,000.
        (u128::from(hash) * u128::from(MAX_BPS)) >> 64 < u128::from(self.0)
    }
}

/// A random number. It needs no more than to be spread evenly.
#[inline]
pub(crate) fn random() -> u64 {
    let draw = SAMPLER_STATE.try_with(|state| {
        state.set(state.get().wrapping_add(MULTIPLIER));
        fold(state.get(), state.get() ^ KEY)
    });
    // A thread that is ending samples nothing.
    draw.unwrap_or(u64::MAX)
}

/// A hash of a caller of a domain. It needs no collision resistance: being logged gains an attacker nothing.
#[inline]
pub(super) fn caller_digest(domain: &str, caller: &str) -> u64 {
    let both = hash_bytes(hash_bytes(KEY, domain.as_bytes()), caller.as_bytes());
    fold(both, MULTIPLIER)
}

/// The same from the digest of the domain's name, which is quicker. It is the same on every server, too.
#[inline]
pub(crate) fn quick_caller_digest(domain: u64, caller: &str) -> u64 {
    fold(hash_bytes(KEY ^ domain, caller.as_bytes()), MULTIPLIER)
}

#[inline]
pub(super) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // The length, never a byte of the text: texts that differ in trailing zeros stay distinct.
    last[7] = bytes.len() as u8;
    fold(hash ^ u64::from_le_bytes(last), MULTIPLIER)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_are_taken_as_there_should_be() {
        for (parts, least, most) in [(0, 0, 0), (10, 60, 140), (1_000, 9_600, 10_400), (10_000, 100_000, 100_000)] {
            let share = SampleRate::from_bps(parts);
            let taken = (0..100_000).filter(|_| share.is_sampled()).count();
            assert!((least..=most).contains(&taken), "{taken} by chance of {parts}");
            let callers = (0..100_000).filter(|n| share.contains(caller_digest("api", &format!("user_{n}")))).count();
            assert!((least..=most).contains(&callers), "{callers} callers of {parts}");
        }
    }

    #[test]
    fn callers_are_distinguished_by_their_whole_names() {
        let all =
            [("api", "a"), ("api", "b"), ("ap", "ia"), ("api", ""), ("api", "a\0"), ("api", "12345678"), ("a", "")];
        let mut hashes: Vec<_> = all.iter().map(|(domain, caller)| caller_digest(domain, caller)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all.len());
        // The same on every server, and after every restart.
        assert_eq!(caller_digest("api", "user_7"), caller_digest("api", &["user", "_7"].concat()));
    }
}
