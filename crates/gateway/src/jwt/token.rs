//! The compact form of a signed token: three parts in base64url, separated by dots.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::SignatureAlgorithm;
use crate::strict_json;

/// A token whose signature is not verified yet. Its payload can't be read: see [`SignedToken::verified`].
#[derive(Debug)]
pub(super) struct SignedToken<'t> {
    pub(super) algorithm: SignatureAlgorithm,
    pub(super) key_id: Option<String>,
    /// What is signed: the header and the payload as they were sent.
    message: &'t str,
    payload: &'t str,
    signature: Vec<u8>,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Longer than 8 KiB.
    TooLong,
    /// Not the compact form of a signed token.
    Malformed,
    /// An algorithm that no key can have: `none`, a symmetric one, an unknown one.
    Algorithm,
    /// It requires an extension (`crit`), and none is known.
    Critical,
    /// No key has its `kid` and allows its algorithm.
    UnknownKey,
    Signature,
    /// `exp` is missing.
    Endless,
    Expired,
    /// `nbf`, or an `iat` in the far future.
    NotYetValid,
    Issuer,
    Audience,
}

/// The longest token, in bytes.
pub(super) const MAX_TOKEN_BYTES: usize = 8 * 1024;

impl<'t> SignedToken<'t> {
    pub(super) fn parse(text: &'t str) -> Result<SignedToken<'t>, TokenFault> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenFault::TooLong);
        }
        let (message, signature) = text.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(TokenFault::Malformed)?;
        if payload.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let header = object(header)?;
        // Any value is refused, also an empty list: its rules are the first to be forgotten.
        if header.contains_key("crit") {
            return Err(TokenFault::Critical);
        }
        let name = header.get("alg").and_then(Value::as_str).ok_or(TokenFault::Malformed)?;
        let algorithm = SignatureAlgorithm::parse(name).ok_or(TokenFault::Algorithm)?;
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err(TokenFault::Malformed),
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenFault::Malformed)?;
        Ok(SignedToken { algorithm, key_id, message, payload, signature })
    }

    /// The payload, if `is_valid` accepts the message and the signature.
    pub(super) fn verified(
        &self,
        is_valid: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<Map<String, Value>, TokenFault> {
        match is_valid(self.message.as_bytes(), &self.signature) {
            true => object(self.payload),
            false => Err(TokenFault::Signature),
        }
    }
}

fn object(part: &str) -> Result<Map<String, Value>, TokenFault> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Malformed)?;
    strict_json::object(&bytes).ok_or(TokenFault::Malformed)
}

impl TokenFault {
    /// In the order of their numbers.
    pub const ALL: [TokenFault; 11] = [
        TokenFault::TooLong,
        TokenFault::Malformed,
        TokenFault::Algorithm,
        TokenFault::Critical,
        TokenFault::UnknownKey,
        TokenFault::Signature,
        TokenFault::Endless,
        TokenFault::Expired,
        TokenFault::NotYetValid,
        TokenFault::Issuer,
        TokenFault::Audience,
    ];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            TokenFault::TooLong => "too_long",
            TokenFault::Malformed => "malformed",
            TokenFault::Algorithm => "algorithm",
            TokenFault::Critical => "critical",
            TokenFault::UnknownKey => "unknown_key",
            TokenFault::Signature => "signature",
            TokenFault::Endless => "endless",
            TokenFault::Expired => "expired",
            TokenFault::NotYetValid => "not_yet_valid",
            TokenFault::Issuer => "issuer",
            TokenFault::Audience => "audience",
        }
    }
}

impl fmt::Display for TokenFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TokenFault::TooLong => "the token is too long",
            TokenFault::Malformed => "the token is malformed",
            TokenFault::Algorithm => "the token's algorithm is not accepted",
            TokenFault::Critical => "the token requires an extension",
            TokenFault::UnknownKey => "the token's key is not known",
            TokenFault::Signature => "the token's signature is wrong",
            TokenFault::Endless => "the token never expires",
            TokenFault::Expired => "the token has expired",
            TokenFault::NotYetValid => "the token is not valid yet",
            TokenFault::Issuer => "the token is of another issuer",
            TokenFault::Audience => "the token is for another audience",
        })
    }
}
