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

/// A hash of a whole key, of 104 bits: the last [`FREE_BITS`](Fingerprint::FREE_BITS) of `high` are zero, so that a table can
/// store something else in their place.
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
        KeyHash { partition, key: Fingerprint::new((whole >> 64) as u64, whole as u64) }
    }
}

impl Fingerprint {
    pub(super) const FREE_BITS: u32 = 24;
    /// The bits that are zero.
    pub(super) const FREE: u64 = (1 << Fingerprint::FREE_BITS) - 1;

    pub(super) fn new(high: u64, low: u64) -> Fingerprint {
        Fingerprint { high: high & !Fingerprint::FREE, low }
    }
}

impl KeyHash {
    /// Identifies the caller in whose partition the counter lives.
    pub(super) fn caller(self) -> u64 {
        self.partition as u64
    }

    /// The number of its shard among 2^`bits`.
    pub(super) fn shard(self, bits: u32) -> usize {
        self.partition.checked_shr(128 - bits).unwrap_or(0) as usize
    }
}
