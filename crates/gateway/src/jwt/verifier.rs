//! The verifier of one issuer's tokens.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tollgate_core::Timestamp;

use super::cache::{TokenCache, token_digest};
use super::claims::{self, ClaimPath};
use super::key_set::KeySet;
use super::shared_keys::SharedKeys;
use super::token::{SignedToken, TokenFault};
use crate::model::IssuerConfig;

/// Verifies the tokens of an issuer, with keys that can be swapped.
#[derive(Debug)]
pub struct Verifier {
    config: Arc<IssuerConfig>,
    /// What is read from tokens.
    paths: Vec<ClaimPath>,
    keys: Arc<SharedKeys>,
    trusted: ArcSwap<Trusted>,
}

/// The values of the claims that a verifier reads, in the order of its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClaims(Arc<[Option<Box<str>>]>);

/// Keys, with the tokens that were verified with them. Both are swapped together, so that no token outlives its key.
#[derive(Debug)]
struct Trusted {
    keys: Arc<KeySet>,
    cache: TokenCache,
}

impl Verifier {
    /// A verifier without keys, which accepts no token until it has some.
    pub fn new(config: Arc<IssuerConfig>, paths: Vec<ClaimPath>) -> Verifier {
        Verifier::with_keys(config, paths, Arc::default())
    }

    /// A verifier with the keys of a source.
    pub fn with_keys(config: Arc<IssuerConfig>, paths: Vec<ClaimPath>, keys: Arc<SharedKeys>) -> Verifier {
        let trusted = Trusted::new(keys.current().clone());
        Verifier { config, paths, keys, trusted: ArcSwap::from_pointee(trusted) }
    }

    pub fn config(&self) -> &Arc<IssuerConfig> {
        &self.config
    }

    pub fn paths(&self) -> &[ClaimPath] {
        &self.paths
    }

    /// The keys of its source.
    pub fn keys(&self) -> &Arc<SharedKeys> {
        &self.keys
    }

    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Replaces the keys of its source. Tokens that were verified with the earlier ones are verified again.
    pub fn set_keys(&self, keys: KeySet) {
        self.keys.set(keys);
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedClaims, TokenFault> {
        self.accept(token, now).inspect_err(|fault| self.keys.refuse(*fault))
    }

    fn accept(&self, token: &str, now: Timestamp) -> Result<VerifiedClaims, TokenFault> {
        if token.len() > super::token::MAX_TOKEN_BYTES {
            return Err(TokenFault::TooLong);
        }
        let now = now.as_micros() / 1_000_000;
        let trusted = self.trusted();
        let digest = token_digest(token);
        if let Some(claims) = trusted.cache.get(&digest, now) {
            return Ok(claims);
        }
        let (claims, expires) = self.verify_anew(&trusted.keys, token, now)?;
        trusted.cache.insert(digest, claims.clone(), expires, now);
        Ok(claims)
    }

    /// The keys in force, with the tokens that they have verified.
    fn trusted(&self) -> Guard<Arc<Trusted>> {
        let trusted = self.trusted.load();
        let keys = self.keys.current();
        if Arc::ptr_eq(&trusted.keys, &keys) {
            return trusted;
        }
        // Another thread may do the same; then one of the two caches is forgotten.
        self.trusted.store(Arc::new(Trusted::new(keys.clone())));
        self.trusted.load()
    }

    fn verify_anew(&self, keys: &KeySet, token: &str, now: u64) -> Result<(VerifiedClaims, u64), TokenFault> {
        let token = SignedToken::parse(token)?;
        let mut candidates = keys.candidates(token.key_id.as_deref(), token.algorithm).peekable();
        if candidates.peek().is_none() {
            if token.key_id.is_some() {
                self.keys.miss_one();
            }
            return Err(TokenFault::UnknownKey);
        }
        let payload = token.verified(|message, signature| {
            candidates.any(|candidate| candidate.key.verify(token.algorithm, message, signature))
        })?;
        let expires = claims::check(&payload, &self.config, now)?;
        let values = self.paths.iter().map(|path| path.read(&payload)).collect();
        Ok((VerifiedClaims(values), expires))
    }

    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.trusted().cache.len()
    }
}

impl VerifiedClaims {
    /// The value of the path with this index.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.0.get(index)?.as_deref()
    }
}

impl Trusted {
    fn new(keys: Arc<KeySet>) -> Trusted {
        Trusted { keys, cache: TokenCache::new() }
    }
}
