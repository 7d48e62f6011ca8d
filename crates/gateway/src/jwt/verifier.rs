//! The verifier of one issuer's tokens.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_core::Timestamp;

use super::cache::{TokenCache, token_digest};
use super::claims::{self, ClaimPath};
use super::key_set::KeySet;
use super::token::{SignedToken, TokenFault};
use crate::model::IssuerConfig;

/// Verifies the tokens of an issuer, with keys that can be swapped.
#[derive(Debug)]
pub struct Verifier {
    config: Arc<IssuerConfig>,
    /// What is read from tokens.
    paths: Vec<ClaimPath>,
    trusted: ArcSwap<Trusted>,
}

/// The values of the claims that a verifier reads, in the order of its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClaims(Arc<[Option<Box<str>>]>);

/// Keys, with the tokens that were verified with them. Both are swapped together, so that no token outlives its key.
#[derive(Debug)]
struct Trusted {
    keys: KeySet,
    cache: TokenCache,
}

impl Verifier {
    /// A verifier without keys, which accepts no token until it has some.
    pub fn new(config: Arc<IssuerConfig>, paths: Vec<ClaimPath>) -> Verifier {
        Verifier { config, paths, trusted: ArcSwap::from_pointee(Trusted::new(KeySet::default())) }
    }

    pub fn config(&self) -> &Arc<IssuerConfig> {
        &self.config
    }

    pub fn paths(&self) -> &[ClaimPath] {
        &self.paths
    }

    pub fn has_keys(&self) -> bool {
        !self.trusted.load().keys.is_empty()
    }

    /// Replaces the keys. Tokens that were verified with the earlier ones are verified again.
    pub fn set_keys(&self, keys: KeySet) {
        self.trusted.store(Arc::new(Trusted::new(keys)));
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedClaims, TokenFault> {
        if token.len() > super::token::MAX_TOKEN_BYTES {
            return Err(TokenFault::TooLong);
        }
        let now = now.as_micros() / 1_000_000;
        let trusted = self.trusted.load();
        let digest = token_digest(token);
        if let Some(claims) = trusted.cache.get(&digest, now) {
            return Ok(claims);
        }
        let (claims, expires) = self.verify_anew(&trusted.keys, token, now)?;
        trusted.cache.insert(digest, claims.clone(), expires, now);
        Ok(claims)
    }

    fn verify_anew(&self, keys: &KeySet, token: &str, now: u64) -> Result<(VerifiedClaims, u64), TokenFault> {
        let token = SignedToken::parse(token)?;
        let mut candidates = keys.candidates(token.key_id.as_deref(), token.algorithm).peekable();
        if candidates.peek().is_none() {
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
        self.trusted.load().cache.len()
    }
}

impl VerifiedClaims {
    /// The value of the path with this index.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.0.get(index)?.as_deref()
    }
}

impl Trusted {
    fn new(keys: KeySet) -> Trusted {
        Trusted { keys, cache: TokenCache::new() }
    }
}
