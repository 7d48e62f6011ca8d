//! TokenRecords: their records, and lookup by secret.
//!
//! Secrets are not stored: a record has the SHA-256, and a presented secret is hashed before it is compared. Secrets are 32 random
//! bytes, so a fast hash is enough.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, header};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tollgate::Timestamp;
use tollgate_records::Rfc3339;
use tollgate_wire::AccessControl;

use crate::scopes::{AccessScope, AccessScopes};
use crate::store_of_record::{ControlPlane, TokenRecords};

/// The document of a token's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenDocument {
    /// SHA-256 of the secret, in hexadecimal digits.
    pub hash: String,
    /// The hash of the previous secret during its grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_until: Option<Rfc3339>,
    /// Names of scopes. Unknown ones, of a newer Tollgate, are ignored.
    pub scopes: Vec<String>,
    pub created_by: String,
    pub created_at: Rfc3339,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// SHA-256.
pub type Digest = [u8; 32];

/// The tokens in force, looked up by their secrets. A written token is effective for the next request.
#[derive(Debug)]
pub struct TokenIndex {
    control: Arc<ControlPlane>,
    tokens: watch::Receiver<Arc<TokenRecords>>,
    table: ArcSwap<TokenTable>,
}

/// The owner of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The token's name.
    pub name: Arc<str>,
    pub scopes: AccessScopes,
}

/// TokenRecords by the prefixes of their hashes.
#[derive(Debug, Default)]
struct TokenTable {
    /// The records that this was built from.
    source: Arc<TokenRecords>,
    entries: HashMap<[u8; 8], Vec<TokenEntry>>,
}

#[derive(Debug)]
struct TokenEntry {
    hash: Digest,
    until: Option<Timestamp>,
    holder: TokenHolder,
}

/// The prefix of every secret, by which leaked ones are recognized.
const PREFIX: &str = "tg_";
/// The maximal length of a presented secret. Generated ones have 67 bytes.
pub const MAX_SECRET_BYTES: usize = 4_096;

/// An alternative to `Authorization`, for requests that carry somebody else's `Authorization` header.
pub static TOKEN_HEADER: HeaderName = HeaderName::from_static("x-tollgate-token");

impl TokenDocument {
    /// Parses a record, if this version can read it.
    pub fn parse(text: &str) -> Option<TokenDocument> {
        serde_json::from_str(text).ok()
    }

    pub fn scopes(&self) -> AccessScopes {
        self.scopes.iter().filter_map(|word| AccessScope::parse(word)).collect()
    }

    /// Whether it has all scopes of the admin API and never expires.
    pub fn is_permanent_admin(&self) -> bool {
        self.expires_at.is_none() && self.scopes().is_full_admin()
    }
}

impl TokenIndex {
    pub fn new(control: Arc<ControlPlane>) -> TokenIndex {
        TokenIndex { tokens: control.tokens(), control, table: ArcSwap::default() }
    }

    /// Whether there are tokens, expired or not.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.borrow().is_empty()
    }

    /// Whether there are tokens, or it is unknown.
    pub fn may_have_tokens(&self) -> bool {
        self.has_tokens() || !self.control.knows_tokens()
    }

    /// The owner of a secret, if its token is in force now.
    pub fn find(&self, secret: &[u8]) -> Option<TokenHolder> {
        if secret.len() > MAX_SECRET_BYTES {
            return None;
        }
        self.table().find(&hash(secret), self.control.now()).cloned()
    }

    fn table(&self) -> Arc<TokenTable> {
        let tokens = self.tokens.borrow().clone();
        let table = self.table.load();
        // The table holds its source, so another source never has the same address.
        if Arc::ptr_eq(&table.source, &tokens) {
            return Arc::clone(&table);
        }
        let fresh = Arc::new(TokenTable::new(tokens));
        self.table.store(fresh.clone());
        fresh
    }
}

impl AccessControl for TokenIndex {
    fn may_check(&self, headers: &HeaderMap) -> bool {
        let presented = match headers.get(&TOKEN_HEADER) {
            Some(token) => Some(token.as_bytes()),
            None => bearer(headers),
        };
        presented.and_then(|secret| self.find(secret)).is_some_and(|holder| holder.scopes.contains(AccessScope::Check))
    }

    fn may_check_by_own_header(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(&TOKEN_HEADER) && self.may_check(headers)
    }
}

impl TokenTable {
    fn new(source: Arc<TokenRecords>) -> TokenTable {
        let mut entries: HashMap<[u8; 8], Vec<TokenEntry>> = HashMap::new();
        let mut add = |text: &str, until: Option<Rfc3339>, holder: &TokenHolder| {
            let Some(hash) = from_hex(text) else { return };
            let entry = TokenEntry { hash, until: until.map(|until| until.0), holder: holder.clone() };
            entries.entry(hash_prefix(&hash)).or_default().push(entry);
        };
        for (name, text) in source.iter() {
            let Some(document) = TokenDocument::parse(text) else {
                tracing::warn!(token = %name, "a token can't be read and is not accepted; a newer Tollgate may have written it");
                continue;
            };
            let holder = TokenHolder { name: Arc::from(&**name), scopes: document.scopes() };
            add(&document.hash, document.expires_at, &holder);
            if let (Some(old), Some(until)) = (&document.old_hash, document.old_until) {
                add(old, Some(document.expires_at.map_or(until, |end| end.min(until))), &holder);
            }
        }
        TokenTable { source, entries }
    }

    fn find(&self, hash: &Digest, now: Timestamp) -> Option<&TokenHolder> {
        // Timing may reveal the prefix of a hash, but no secret with that hash.
        let entries = self.entries.get(&hash_prefix(hash))?;
        let found = entries
            .iter()
            .filter(|entry| constant_time_eq(&entry.hash, hash))
            .find(|entry| entry.until.is_none_or(|until| now < until));
        found.map(|entry| &entry.holder)
    }
}

/// Generates a secret.
///
/// # Errors
/// If the system provides no random numbers.
pub fn generate_secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system provides no random numbers for a token".to_owned())?;
    Ok(format!("{PREFIX}{}", to_hex(&bytes)))
}

/// The stored hash of a secret.
pub fn hash(secret: &[u8]) -> Digest {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

/// Compares two hashes in constant time.
pub fn constant_time_eq(one: &Digest, other: &Digest) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    black_box(differ) == 0
}

/// The token of `Authorization: Bearer …`.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Digest> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(digits).collect();
    bytes?.try_into().ok()
}

fn hash_prefix(hash: &Digest) -> [u8; 8] {
    let mut hash_prefix = [0; 8];
    hash_prefix.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
    hash_prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(secret: &str) -> TokenDocument {
        TokenDocument {
            hash: to_hex(&hash(secret.as_bytes())),
            old_hash: None,
            old_until: None,
            scopes: vec!["read".to_owned(), "from-the-future".to_owned()],
            created_by: "t".to_owned(),
            created_at: moment(1),
            expires_at: None,
        }
    }

    fn moment(second: u64) -> Rfc3339 {
        Rfc3339(Timestamp::from_secs(second))
    }

    fn table(documents: &[(&str, &TokenDocument)]) -> TokenTable {
        TokenTable::new(Arc::new(
            documents.iter().map(|(name, one)| ((*name).to_owned(), serde_json::to_string(one).unwrap())).collect(),
        ))
    }

    #[test]
    fn a_secret_finds_its_token_while_it_holds() {
        let ends = TokenDocument { expires_at: Some(moment(100)), ..document("ends") };
        let rotated = TokenDocument {
            old_hash: Some(document("before").hash),
            old_until: Some(moment(50)),
            expires_at: Some(moment(100)),
            ..document("after")
        };
        let short = TokenDocument { old_until: Some(moment(500)), ..rotated.clone() };
        let table = table(&[("always", &document("always")), ("ends", &ends), ("rotated", &rotated)]);
        let at = |secret: &str, second| {
            table.find(&hash(secret.as_bytes()), Timestamp::from_secs(second)).map(|holder| holder.name.to_string())
        };
        for (secret, second, found) in [
            ("always", 1_000, Some("always")),
            ("Always", 1_000, None),
            ("", 1_000, None),
            ("ends", 99, Some("ends")),
            ("ends", 100, None),
            ("before", 49, Some("rotated")),
            ("before", 50, None),
            ("after", 99, Some("rotated")),
            ("after", 100, None),
        ] {
            assert_eq!(at(secret, second).as_deref(), found, "{secret} at {second}");
        }
        // The grace of an old secret does not outlast its token.
        let table = super::tests::table(&[("short", &short)]);
        assert_eq!(table.find(&hash(b"before"), Timestamp::from_secs(100)), None);
        assert!(table.find(&hash(b"before"), Timestamp::from_secs(99)).is_some());
    }

    #[test]
    fn hashes_with_a_common_prefix_are_distinct() {
        let mut near = hash(b"one");
        near[31] ^= 1;
        let table = table(&[("near", &TokenDocument { hash: to_hex(&near), ..document("") })]);
        assert_eq!(table.find(&hash(b"one"), Timestamp::from_secs(1)), None);
        assert!(table.find(&near, Timestamp::from_secs(1)).is_some());
        assert!(constant_time_eq(&near, &near.clone()));
        for at in 0..32 {
            let mut other = near;
            other[at] ^= 0x80;
            assert!(!constant_time_eq(&near, &other), "{at}");
        }
    }

    #[test]
    fn what_can_not_be_read_lets_nobody_in() {
        let tokens = [
            ("a", "{}"),
            ("b", "?"),
            ("c", r#"{"hash":"xyz","scopes":["read"],"created_by":"","created_at":"1970-01-01T00:00:01Z"}"#),
        ];
        let table = TokenTable::new(Arc::new(
            tokens.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        ));
        assert!(table.entries.is_empty());
        let holder = self::table(&[("t", &document("s"))]);
        let holder = holder.find(&hash(b"s"), Timestamp::from_secs(1)).cloned();
        assert_eq!(holder.map(|holder| holder.scopes), Some([AccessScope::Read].into_iter().collect()));
    }

    #[test]
    fn secrets_are_long_and_never_twice_the_same() {
        let (one, other) = (generate_secret().unwrap(), generate_secret().unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("tg_") && one.len() == 67, "{one}");
    }

    #[test]
    fn a_bearer_token_is_read_from_its_header() {
        for (header, token) in [
            ("Bearer tg_1", Some("tg_1")),
            ("bearer  tg_1 ", Some("tg_1")),
            ("Basic tg_1", None),
            ("tg_1", None),
            ("Bearer", None),
            ("Bearer ", Some("")),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, header.parse().unwrap())]);
            assert_eq!(bearer(&headers), token.map(str::as_bytes), "{header}");
        }
    }
}
