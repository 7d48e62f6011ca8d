//! JSON web key sets: the public keys of an issuer.

use std::fmt;

use serde_json::Value;

use super::algorithm::SignatureAlgorithm;
use super::jwk::WebKey;
use crate::strict_json;

/// The keys that tokens are verified with.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<WebKey>,
}

/// A key of a set that can't be used. The others are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedKey {
    /// Its place in the set, from 0.
    pub index: usize,
    pub id: Option<String>,
    pub reason: String,
}

/// The largest key set, in bytes.
pub const MAX_KEY_SET_BYTES: usize = 256 * 1024;

/// The most keys of a set that are read.
pub(super) const MAX_KEYS: usize = 100;

/// The most keys that one token is tried with.
const MAX_TRIED_KEYS: usize = 8;

impl KeySet {
    /// Reads a key set. Keys that can't be used are skipped.
    ///
    /// # Errors
    /// If it is no key set, or has no key that can be used: such a set is an accident more often than it is meant, and
    /// the last good one should stay in force.
    pub fn parse(bytes: &[u8]) -> Result<(KeySet, Vec<SkippedKey>), String> {
        if bytes.len() > MAX_KEY_SET_BYTES {
            return Err(format!("the key set has {} bytes, and at most {MAX_KEY_SET_BYTES} are read", bytes.len()));
        }
        let members = strict_json::object(bytes).ok_or("the key set is not a JSON object without repeated members")?;
        let Some(Value::Array(entries)) = members.get("keys") else {
            return Err("the key set has no list `keys`".to_owned());
        };
        let mut set = KeySet::default();
        let mut skipped = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match read(index, entry) {
                Ok(key) => set.keys.push(key),
                Err(reason) => skipped.push(SkippedKey { index, id: id(entry), reason }),
            }
        }
        match (set.keys.is_empty(), skipped.first()) {
            (false, _) => Ok((set, skipped)),
            (true, Some(first)) => Err(format!("the key set has no key that can be used: {first}")),
            (true, None) => Err("the key set has no key".to_owned()),
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys that may have signed a token: those with its `kid`, or without one all that allow the algorithm.
    pub(super) fn candidates(&self, id: Option<&str>, algorithm: SignatureAlgorithm) -> impl Iterator<Item = &WebKey> {
        let is_named = move |key: &&WebKey| id.is_none() || key.id.as_deref() == id;
        self.keys.iter().filter(is_named).filter(move |key| key.allows(algorithm)).take(MAX_TRIED_KEYS)
    }
}

fn read(index: usize, entry: &Value) -> Result<WebKey, String> {
    if index >= MAX_KEYS {
        return Err(format!("only the first {MAX_KEYS} keys are read"));
    }
    WebKey::parse(entry.as_object().ok_or("it is not an object")?)
}

fn id(entry: &Value) -> Option<String> {
    entry.get("kid").and_then(Value::as_str).map(|id| id.chars().take(80).collect())
}

impl fmt::Display for SkippedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(formatter, "key {} ({id:?}): {}", self.index, self.reason),
            None => write!(formatter, "key {}: {}", self.index, self.reason),
        }
    }
}
