//! Secrets for keyed hashes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tollgate_core::key::Secret;

/// A secret that nobody knows, from the standard library's own source of randomness for hash maps.
pub(crate) fn draw() -> Secret {
    let random = RandomState::new();
    Secret(random.hash_one(0u8), random.hash_one(1u8))
}
