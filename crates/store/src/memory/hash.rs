//! How a key becomes a place: a keyed hash, so that callers can't choose values that collide.

use smallvec::SmallVec;
use tollgate_core::key::{Key, Secret};
use tollgate_core::{Charge, Claim};

use crate::secret;

/// Turns keys into places, with the secret of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    secret: Secret,
}

/// Where a key belongs: its partition names the shard, the whole of it the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    partition: u128,
    pub(super) key: Fingerprint,
}

/// A 128-bit hash of a whole key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl Hasher {
    /// One with the secret of an earlier store, whose places are the same.
    pub(super) fn of(secret: Secret) -> Hasher {
        Hasher { secret }
    }

    pub(super) fn secret(&self) -> Secret {
        self.secret
    }

    pub(super) fn random() -> Hasher {
        Hasher { secret: secret::draw() }
    }

    /// Adds the places of a claim's keys, in the order of its charges.
    pub(super) fn print_all(&self, claim: &Claim<'_>, prints: &mut SmallVec<[Print; 4]>) {
        let mut before: Option<&Key<'_>> = None;
        for Charge { key, .. } in &claim.charges {
            // Most charges of a claim are in one caller's partition, which is hashed once.
            let partition = match (before, prints.last()) {
                (Some(before), Some(print)) if key.is_beside(before) => print.partition,
                _ => key.partition(self.secret),
            };
            prints.push(self.within(partition, key));
            before = Some(key);
        }
    }

    /// The place of one key.
    pub(super) fn print(&self, key: &Key<'_>) -> Print {
        self.within(key.partition(self.secret), key)
    }

    fn within(&self, partition: u128, key: &Key<'_>) -> Print {
        let whole = key.whole(self.secret, partition);
        Print { partition, key: Fingerprint { high: (whole >> 64) as u64, low: whole as u64 } }
    }
}

impl Print {
    /// The number of its shard among 2^`bits`.
    pub(super) fn shard(self, bits: u32) -> usize {
        self.partition.checked_shr(128 - bits).unwrap_or(0) as usize
    }
}
