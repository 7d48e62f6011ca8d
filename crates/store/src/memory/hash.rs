//! Keyed hashes of keys, so that callers cannot choose values that collide.

use smallvec::SmallVec;
use tollgate_core::key::{HashSecret, Key};
use tollgate_core::{Charge, Claim};

use crate::secret;

/// Hashes keys with the secret of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHasher {
    secret: HashSecret,
}

/// The hash of a key: its partition selects the shard, the whole key the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash {
    partition: u128,
    pub(super) key: Fingerprint,
}

/// A 128-bit hash of a whole key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl KeyHasher {
    /// A hasher with the secret of an earlier store. Its hashes are the same.
    pub(super) fn from_secret(secret: HashSecret) -> KeyHasher {
        KeyHasher { secret }
    }

    pub(super) fn secret(&self) -> HashSecret {
        self.secret
    }

    pub(super) fn random() -> KeyHasher {
        KeyHasher { secret: secret::random() }
    }

    /// Adds the hashes of a claim's keys, in the order of its charges.
    pub(super) fn hash_all(&self, claim: &Claim<'_>, hashes: &mut SmallVec<[KeyHash; 4]>) {
        let mut before: Option<&Key<'_>> = None;
        for Charge { key, .. } in &claim.charges {
            // Most charges of a claim are in one caller's partition, which is hashed once.
            let partition = match (before, hashes.last()) {
                (Some(before), Some(hash)) if key.shares_partition_with(before) => hash.partition,
                _ => key.partition(self.secret),
            };
            hashes.push(self.hash_in(partition, key));
            before = Some(key);
        }
    }

    /// The hash of one key.
    pub(super) fn hash(&self, key: &Key<'_>) -> KeyHash {
        self.hash_in(key.partition(self.secret), key)
    }

    fn hash_in(&self, partition: u128, key: &Key<'_>) -> KeyHash {
        let whole = key.hash(self.secret, partition);
        KeyHash { partition, key: Fingerprint { high: (whole >> 64) as u64, low: whole as u64 } }
    }
}

impl KeyHash {
    /// The number of its shard among 2^`bits`.
    pub(super) fn shard(self, bits: u32) -> usize {
        self.partition.checked_shr(128 - bits).unwrap_or(0) as usize
    }
}
