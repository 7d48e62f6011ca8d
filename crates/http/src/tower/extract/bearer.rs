//! The subject of bearer tokens.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::Deserialize;

use super::{Attribute, Find};

/// The subject of a bearer token.
#[derive(Clone, Copy, Debug)]
pub struct BearerSubject;

/// The maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The claims of a token that are read.
#[derive(Deserialize)]
struct TokenClaims {
    sub: Option<String>,
}

/// The `sub` of a JSON Web Token in `Authorization: Bearer …`, under the name `user`.
///
/// **The token is not verified.** Anybody can forge a token with any subject, and be counted as that user or as a new
/// one each time. Use it only behind authentication, for requests whose tokens have been verified.
///
/// Other tokens, and those longer than 8 KiB, have no subject.
pub fn bearer_subject() -> Attribute<BearerSubject> {
    Attribute::new("user", BearerSubject)
}

impl Find for BearerSubject {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        let (scheme, token) = head.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = token.trim().split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        // Only an object: serde would accept a list too.
        let claims =
            URL_SAFE_NO_PAD.decode(claims).ok().filter(|claims| claims.trim_ascii_start().starts_with(b"{"))?;
        serde_json::from_slice::<TokenClaims>(&claims).ok()?.sub.map(Cow::Owned)
    }
}
