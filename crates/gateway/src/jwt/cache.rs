//! Tokens that were verified already, by their digest, so that requests with the same token cost one check of a
//! signature.
//!
//! Only accepted tokens are stored: nobody without one can fill the cache.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use super::verifier::VerifiedClaims;

/// Verified tokens, in shards that lock by themselves.
#[derive(Debug)]
pub(super) struct TokenCache {
    shards: [Mutex<Shard>; SHARDS],
}

/// The digest of a token.
pub(super) type TokenDigest = [u8; SHA256_OUTPUT_LEN];

/// Two generations of entries. What is used moves to the young one; when that is full, it becomes the old one, and the
/// old one is forgotten. So nothing is ever searched for what to forget.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<TokenDigest, CachedToken>,
    old: HashMap<TokenDigest, CachedToken>,
}

#[derive(Clone, Debug)]
struct CachedToken {
    claims: VerifiedClaims,
    /// In seconds since 1970.
    until: u64,
}

const SHARDS: usize = 16;
/// The most tokens that are stored.
pub(super) const MAX_TOKENS: usize = 10_000;
const MAX_GENERATION: usize = MAX_TOKENS / SHARDS / 2;
/// How long a token is not verified again, in seconds.
const MAX_AGE: u64 = 300;

pub(super) fn token_digest(token: &str) -> TokenDigest {
    let mut bytes = TokenDigest::default();
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

impl TokenCache {
    pub(super) fn new() -> TokenCache {
        TokenCache { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// The claims of a token that was verified, and has not expired since.
    pub(super) fn get(&self, digest: &TokenDigest, now: u64) -> Option<VerifiedClaims> {
        let mut shard = self.shard(digest).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = shard.young.get(digest) {
            return (now < token.until).then(|| token.claims.clone());
        }
        let token = shard.old.remove(digest).filter(|token| now < token.until)?;
        let claims = token.claims.clone();
        shard.insert(*digest, token);
        Some(claims)
    }

    /// Stores the claims of a token that expires at this time.
    pub(super) fn insert(&self, digest: TokenDigest, claims: VerifiedClaims, expires: u64, now: u64) {
        let token = CachedToken { claims, until: expires.min(now.saturating_add(MAX_AGE)) };
        self.shard(&digest).lock().unwrap_or_else(PoisonError::into_inner).insert(digest, token);
    }

    fn shard(&self, digest: &TokenDigest) -> &Mutex<Shard> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let shards = self.shards.iter().map(|shard| shard.lock().unwrap());
        shards.map(|shard| shard.young.len() + shard.old.len()).sum()
    }
}

impl Shard {
    fn insert(&mut self, digest: TokenDigest, token: CachedToken) {
        if self.young.len() >= MAX_GENERATION && !self.young.contains_key(&digest) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, token);
    }
}
