//! What a verified payload must say, and the claims that are read from it.

use serde_json::{Map, Value};
use tollgate_rules::attribute_text;

use super::token::TokenFault;
use crate::model::IssuerConfig;

/// Where a claim is in a payload: `sub`, or `realm.plan` for a member of an object.
///
/// A claim whose own name has dots (`https://example.com/plan`) goes before a member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPath(String);

/// An `iat` may be ahead by this much, in seconds: it says when a token was made, not when it may be used, and clocks
/// of issuers are often wrong by some seconds.
const FAR_FUTURE: u64 = 300;

impl ClaimPath {
    pub fn new(path: impl Into<String>) -> ClaimPath {
        ClaimPath(path.into())
    }

    /// The claim as the text of an attribute. Lists, objects and empty texts are none.
    pub(super) fn read(&self, payload: &Map<String, Value>) -> Option<Box<str>> {
        let text = match self.find(payload)? {
            Value::String(text) if !text.is_empty() => attribute_text::text(text.as_bytes()).into_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_true) => is_true.to_string(),
            _ => return None,
        };
        Some(text.into_boxed_str())
    }

    fn find<'p>(&self, payload: &'p Map<String, Value>) -> Option<&'p Value> {
        payload.get(&self.0).or_else(|| {
            let mut names = self.0.split('.');
            let first = payload.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        })
    }
}

/// Checks the registered claims of a payload. Returns when the token expires, leeway included, in seconds since 1970.
pub(super) fn check(payload: &Map<String, Value>, config: &IssuerConfig, now: u64) -> Result<u64, TokenFault> {
    let leeway = config.leeway.as_secs();
    let expires = date(payload, "exp")?.ok_or(TokenFault::Endless)?.saturating_add(leeway);
    if now >= expires {
        return Err(TokenFault::Expired);
    }
    let soon = now.saturating_add(leeway);
    if date(payload, "nbf")?.is_some_and(|from| from > soon)
        || date(payload, "iat")?.is_some_and(|made| made > soon.saturating_add(FAR_FUTURE))
    {
        return Err(TokenFault::NotYetValid);
    }
    if let Some(issuer) = &config.issuer
        && payload.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(TokenFault::Issuer);
    }
    match &config.audience {
        Some(audience) if !is_for(payload, audience) => Err(TokenFault::Audience),
        _ => Ok(expires),
    }
}

/// A date in seconds since 1970. Fractions are cut.
fn date(payload: &Map<String, Value>, name: &str) -> Result<Option<u64>, TokenFault> {
    let Some(value) = payload.get(name) else { return Ok(None) };
    let whole = value.as_u64();
    let fraction = || value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds)).map(|seconds| seconds as u64);
    whole.or_else(fraction).map(Some).ok_or(TokenFault::Malformed)
}

fn is_for(payload: &Map<String, Value>, audience: &str) -> bool {
    match payload.get("aud") {
        Some(Value::String(only)) => only == audience,
        Some(Value::Array(list)) => list.iter().any(|entry| entry == audience),
        _ => false,
    }
}
