//! Tokens that are signed here, and tokens that lie.

mod keys;
mod signer;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_core::Timestamp;

use super::*;
use crate::model::{IssuerConfig, KeySource, TokenSource};
use signer::Signer;

const NOW: u64 = 1_800_000_000;

/// The claims of a good token.
fn claims() -> Value {
    json!({"iss": "https://id.example", "aud": ["api", "other"], "sub": "ada", "exp": NOW + 3600, "nbf": NOW - 10,
           "iat": NOW - 10, "plan": "pro", "level": 3, "beta": true, "realm": {"roles": {"main": "admin"}},
           "https://example.com/plan": "gold", "list": ["a"], "empty": ""})
}

/// The claims of a good token, with some that are different. `null` removes one.
fn claims_with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn config() -> IssuerConfig {
    IssuerConfig {
        keys: KeySource::File("jwks.json".into()),
        issuer: Some("https://id.example".into()),
        audience: Some("api".into()),
        token: TokenSource::Bearer,
        leeway: Duration::from_secs(30),
    }
}

/// A verifier that reads `sub`.
fn verifier(keys: &[Value]) -> Verifier {
    verifier_of(keys, &["sub"])
}

fn verifier_of(keys: &[Value], paths: &[&str]) -> Verifier {
    let verifier = Verifier::new(Arc::new(config()), paths.iter().map(|path| ClaimPath::new(*path)).collect());
    verifier.set_keys(key_set(keys));
    verifier
}

fn key_set(keys: &[Value]) -> KeySet {
    let (set, skipped) = KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap();
    assert_eq!(skipped, []);
    set
}

/// The subject that a token is accepted for.
fn subject(verifier: &Verifier, token: &str) -> Result<String, TokenFault> {
    let claims = verifier.verify(token, Timestamp::from_secs(NOW))?;
    Ok(claims.get(0).unwrap_or_default().to_owned())
}
