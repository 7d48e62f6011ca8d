//! JSON web tokens: compact signatures (RFC 7515, 7519), verified with the public keys of an issuer.
//!
//! The key decides which algorithms it may be used with, so that no token can choose `none` or a symmetric algorithm. A
//! token that is not accepted has no claims at all.

mod algorithm;
mod cache;
mod claims;
mod jwk;
mod key_set;
mod shared_keys;
mod token;
mod verifier;

pub use claims::ClaimPath;
pub use key_set::{KeySet, MAX_KEY_SET_BYTES, SkippedKey};
pub use shared_keys::SharedKeys;
pub use token::TokenFault;
pub use verifier::{VerifiedClaims, Verifier};

#[cfg(test)]
mod tests;
