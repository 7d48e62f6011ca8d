//! Who asks, what they may, and under which conditions.

use axum::extract::FromRequestParts;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::hash::Hasher as _;
use tollgate_control::{Expect, Once};

use super::Problem;
use crate::admin::who::{Scope, Who};

/// What comes with every request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) who: Who,
    /// What `If-Match` or `If-None-Match` takes for granted.
    pub(crate) expect: Expect,
    /// `Idempotency-Key`.
    key: Option<String>,
    /// Method and path, which an idempotency key belongs to as well.
    what: String,
}

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest idempotency key.
const LONGEST_KEY: usize = 255;

/// Not a secret: it must be the same on every server.
const DIGEST: (u64, u64) = (0x746f_6c6c_6761_7465, 0x6164_6d69_6e2f_7631);

impl Asked {
    /// Refuses one who may not.
    pub(crate) fn may(&self, scope: Scope) -> Result<(), Problem> {
        self.who.may(scope)
    }

    /// The idempotency record of a write with this body, if one is asked for; `answer` is what is answered if it is sent again.
    pub(crate) fn once(&self, body: &[u8], answer: String) -> Option<Once> {
        let key = self.key.clone()?;
        let mut hasher = SipHasher13::new_with_keys(DIGEST.0, DIGEST.1);
        hasher.write(self.what.as_bytes());
        hasher.write(&[0]);
        hasher.write(body);
        Some(Once {
            key: format!("{}/{key}", self.who.name),
            digest: format!("{:032x}", hasher.finish128().as_u128()),
            answer,
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked, Problem> {
        let who = parts.extensions.get::<Who>().cloned();
        let who =
            who.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "nobody is known to ask"))?;
        let key = match parts.headers.get(&IDEMPOTENCY_KEY).map(|key| key.to_str()) {
            None => None,
            Some(Ok(key)) if (1..=LONGEST_KEY).contains(&key.len()) => Some(key.to_owned()),
            Some(_) => {
                let detail = format!("write an Idempotency-Key of 1 to {LONGEST_KEY} visible characters");
                return Err(Problem::bad_request("bad_idempotency_key", detail));
            }
        };
        let what = format!("{} {}", parts.method, parts.uri);
        Ok(Asked { who, expect: expect(parts)?, key, what })
    }
}

fn expect(parts: &Parts) -> Result<Expect, Problem> {
    let text = |name| parts.headers.get(name).map(|value| value.to_str().map(str::trim).unwrap_or("?"));
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(Expect::Anything),
        (Some("*"), None) => Ok(Expect::Present),
        (None, Some("*")) => Ok(Expect::Absent),
        (Some(tag), None) => {
            let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
            let detail = "If-Match: write the ETag of what you read, for instance \"17\", or *";
            number.map(Expect::Generation).ok_or_else(|| Problem::bad_request("bad_precondition", detail))
        }
        // On a read it asks for nothing that would have to be told.
        (None, Some(_)) if parts.method == http::Method::GET => Ok(Expect::Anything),
        _ => {
            Err(Problem::bad_request("bad_precondition", "write one of If-Match: \"…\", If-Match: *, If-None-Match: *"))
        }
    }
}
