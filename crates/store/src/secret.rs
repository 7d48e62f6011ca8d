//! Secrets for keyed hashes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tollgate_core::key::HashSecret;

/// A random secret, from the standard library's source of randomness for hash maps.
pub(crate) fn random() -> HashSecret {
    let state = RandomState::new();
    HashSecret(state.hash_one(0u8), state.hash_one(1u8))
}
