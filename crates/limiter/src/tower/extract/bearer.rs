//! Whose token it is.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::Deserialize;

use super::{Find, One};

/// The subject of a bearer token.
#[derive(Clone, Copy, Debug)]
pub struct BearerSubject;

/// The longest token that is looked at, in bytes.
const LONGEST_TOKEN: usize = 8 * 1024;

/// What a token claims, as far as it is of interest.
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
}

/// The `sub` of a JSON Web Token in `Authorization: Bearer …`, under the name `user`.
///
/// **The token is not verified.** Anybody can write one with any subject, and be counted as that user or as a new one each time. So
/// this is only for a layer behind authentication: one that sees requests whose tokens were verified before.
///
/// What is no such token, or is longer than 8 KiB, has no subject.
pub fn bearer_subject() -> One<BearerSubject> {
    One::new("user", BearerSubject)
}

impl Find for BearerSubject {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        let (scheme, token) = head.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.len() > LONGEST_TOKEN {
            return None;
        }
        let mut parts = token.trim().split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        // An object: serde would take a list for one too.
        let claims =
            URL_SAFE_NO_PAD.decode(claims).ok().filter(|claims| claims.trim_ascii_start().starts_with(b"{"))?;
        serde_json::from_slice::<Claims>(&claims).ok()?.sub.map(Cow::Owned)
    }
}
