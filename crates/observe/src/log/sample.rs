//! Which decisions and which callers are among those that are logged.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

/// A share of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u16);

/// Parts of a whole.
const PARTS: u16 = 10_000;

/// Not a secret: on every server the same callers are those of whom all is logged.
const KEY: u64 = 0x7477_6c67_2d77_6879;
/// An odd number with no pattern in it.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    /// So that no two threads pick in step.
    static PICKED: Cell<u64> = Cell::new(RandomState::new().hash_one(KEY));
}

impl Share {
    /// None of them.
    pub const NONE: Share = Share(0);
    /// Each of them.
    pub const ALL: Share = Share(PARTS);

    /// So many of 10,000; more is all.
    pub const fn of_10_000(parts: u16) -> Share {
        Share(if parts < PARTS { parts } else { PARTS })
    }

    /// In parts of 10,000.
    pub fn parts(self) -> u16 {
        self.0
    }

    /// Whether this time is one of those that were picked, at random.
    #[inline]
    pub(super) fn takes_one(self) -> bool {
        match self.0 {
            0 => false,
            PARTS => true,
            _ => {
                // A thread that is ending picks nothing.
                let picked = PICKED.try_with(|picked| {
                    picked.set(picked.get().wrapping_add(MULTIPLIER));
                    folded(picked.get(), picked.get() ^ KEY)
                });
                picked.is_ok_and(|picked| self.has(picked))
            }
        }
    }

    /// Whether one with this hash is in it.
    #[inline]
    pub(super) fn has(self, hash: u64) -> bool {
        // The high half of the product is a number below 10,000.
        (u128::from(hash) * u128::from(PARTS)) >> 64 < u128::from(self.0)
    }
}

/// A hash of a caller of a domain. It need not withstand anybody: who finds a name that is logged gains nothing by it.
#[inline]
pub(super) fn digest(domain: &str, caller: &str) -> u64 {
    let both = of_bytes(of_bytes(KEY, domain.as_bytes()), caller.as_bytes());
    folded(both, MULTIPLIER)
}

#[inline]
fn of_bytes(begun: u64, bytes: &[u8]) -> u64 {
    let mut hash = begun;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = folded(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // Never a byte of the text: what ends with zeros is told from what ends before them.
    last[7] = bytes.len() as u8;
    folded(hash ^ u64::from_le_bytes(last), MULTIPLIER)
}

#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_are_taken_as_there_should_be() {
        for (parts, least, most) in [(0, 0, 0), (10, 60, 140), (1_000, 9_600, 10_400), (10_000, 100_000, 100_000)] {
            let share = Share::of_10_000(parts);
            let taken = (0..100_000).filter(|_| share.takes_one()).count();
            assert!((least..=most).contains(&taken), "{taken} by chance of {parts}");
            let callers = (0..100_000).filter(|n| share.has(digest("api", &format!("user_{n}")))).count();
            assert!((least..=most).contains(&callers), "{callers} callers of {parts}");
        }
    }

    #[test]
    fn callers_are_told_apart_by_all_of_their_names() {
        let all =
            [("api", "a"), ("api", "b"), ("ap", "ia"), ("api", ""), ("api", "a\0"), ("api", "12345678"), ("a", "")];
        let mut hashes: Vec<_> = all.iter().map(|(domain, caller)| digest(domain, caller)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all.len());
        // The same on every server, and after every restart.
        assert_eq!(digest("api", "user_7"), digest("api", &["user", "_7"].concat()));
    }
}
