//! Tokens: what their records say, and who is behind a secret.
//!
//! Nobody keeps a secret: a record has its SHA-256, and what is shown is hashed before it is compared. Secrets are 32 random bytes, so
//! that a fast hash is enough and hashes say nothing of them.

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
use tollgate::control::Moment;

use crate::admin::who::{Scope, Scopes};
use crate::control::{Control, Tokens};

/// The document of a token's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenDocument {
    /// Of the secret, SHA-256 in hexadecimal digits.
    pub(crate) hash: String,
    /// Of the secret before it, which holds for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_until: Option<Moment>,
    /// The words of scopes. Those that only a newer Tollgate knows mean nothing here.
    pub(crate) scopes: Vec<String>,
    pub(crate) created_by: String,
    pub(crate) created_at: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Moment>,
}

/// SHA-256.
pub(crate) type Digest = [u8; 32];

/// The tokens in force, to be looked up by their secrets. What is written is known to the next request.
#[derive(Debug)]
pub(crate) struct Keys {
    control: Arc<Control>,
    tokens: watch::Receiver<Arc<Tokens>>,
    known: ArcSwap<Known>,
}

/// Who is behind a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The token's name.
    pub(crate) name: Arc<str>,
    pub(crate) scopes: Scopes,
}

/// Tokens by the beginnings of their hashes.
#[derive(Debug, Default)]
struct Known {
    /// What they were read from.
    of: Arc<Tokens>,
    entries: HashMap<[u8; 8], Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    hash: Digest,
    until: Option<Timestamp>,
    holder: Holder,
}

/// How every secret begins: so that one that got lost is known for what it is.
const PREFIX: &str = "tg_";
/// The longest that is looked at. Those that are made here have 67 bytes.
pub(crate) const LONGEST_SECRET: usize = 4_096;

/// A header for a token where `Authorization` is somebody else's: that of the request which a proxy asks about.
pub(crate) static TOKEN_HEADER: HeaderName = HeaderName::from_static("x-tollgate-token");

impl TokenDocument {
    /// What a record says, if this Tollgate can read it.
    pub(crate) fn parse(text: &str) -> Option<TokenDocument> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn scopes(&self) -> Scopes {
        self.scopes.iter().filter_map(|word| Scope::parse(word)).collect()
    }

    /// Whether it keeps the door for others: it may do everything, and always will.
    pub(crate) fn is_keeper(&self) -> bool {
        self.expires_at.is_none() && self.scopes().are_all_of_admin()
    }
}

impl Keys {
    pub(crate) fn new(control: Arc<Control>) -> Keys {
        Keys { tokens: control.tokens(), control, known: ArcSwap::default() }
    }

    /// Whether there are any, be they over.
    pub(crate) fn are_there(&self) -> bool {
        !self.tokens.borrow().is_empty()
    }

    /// Whether there are any, or nobody can say that there are none.
    pub(crate) fn may_be_there(&self) -> bool {
        self.are_there() || !self.control.knows_tokens()
    }

    /// Whose secret it is, if its token is in force now.
    pub(crate) fn find(&self, secret: &[u8]) -> Option<Holder> {
        if secret.len() > LONGEST_SECRET {
            return None;
        }
        self.known().find(&hash(secret), self.control.now()).cloned()
    }

    /// Whether a request of the data plane shows a token that may check.
    pub(crate) fn may_check(&self, headers: &HeaderMap) -> bool {
        let shown = match headers.get(&TOKEN_HEADER) {
            Some(token) => Some(token.as_bytes()),
            None => bearer(headers),
        };
        shown.and_then(|secret| self.find(secret)).is_some_and(|holder| holder.scopes.has(Scope::Check))
    }

    /// The same for a request whose `Authorization` is not meant for us.
    pub(crate) fn may_check_by_own_header(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(&TOKEN_HEADER) && self.may_check(headers)
    }

    fn known(&self) -> Arc<Known> {
        let tokens = self.tokens.borrow().clone();
        let known = self.known.load();
        // The old ones are held by what was made of them: others are never at the same place.
        if Arc::ptr_eq(&known.of, &tokens) {
            return Arc::clone(&known);
        }
        let fresh = Arc::new(Known::new(tokens));
        self.known.store(fresh.clone());
        fresh
    }
}

impl Known {
    fn new(of: Arc<Tokens>) -> Known {
        let mut entries: HashMap<[u8; 8], Vec<Entry>> = HashMap::new();
        let mut add = |text: &str, until: Option<Moment>, holder: &Holder| {
            let Some(hash) = from_hex(text) else { return };
            let entry = Entry { hash, until: until.map(|until| until.0), holder: holder.clone() };
            entries.entry(start(&hash)).or_default().push(entry);
        };
        for (name, text) in of.iter() {
            let Some(document) = TokenDocument::parse(text) else {
                tracing::warn!(token = %name, "a token can't be read, a newer Tollgate may have written it: it is not let in");
                continue;
            };
            let holder = Holder { name: Arc::from(&**name), scopes: document.scopes() };
            add(&document.hash, document.expires_at, &holder);
            if let (Some(old), Some(until)) = (&document.old_hash, document.old_until) {
                add(old, Some(document.expires_at.map_or(until, |end| end.min(until))), &holder);
            }
        }
        Known { of, entries }
    }

    fn find(&self, hash: &Digest, now: Timestamp) -> Option<&Holder> {
        // Who could learn how a hash begins would still not know a secret that has it.
        let entries = self.entries.get(&start(hash))?;
        let found = entries
            .iter()
            .filter(|entry| same(&entry.hash, hash))
            .find(|entry| entry.until.is_none_or(|until| now < until));
        found.map(|entry| &entry.holder)
    }
}

/// A new secret.
///
/// # Errors
/// If the system has no randomness.
pub(crate) fn drawn() -> Result<String, String> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system gives no random numbers, which tokens are made of".to_owned())?;
    Ok(format!("{PREFIX}{}", to_hex(&bytes)))
}

/// What is kept of a secret.
pub(crate) fn hash(secret: &[u8]) -> Digest {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

/// Whether two hashes are the same, in a time that does not tell where they differ.
pub(crate) fn same(one: &Digest, other: &Digest) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    black_box(differ) == 0
}

/// The token of `Authorization: Bearer …`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// In hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
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

fn start(hash: &Digest) -> [u8; 8] {
    let mut start = [0; 8];
    start.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
    start
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

    fn moment(second: u64) -> Moment {
        Moment(Timestamp::from_secs(second))
    }

    fn known(documents: &[(&str, &TokenDocument)]) -> Known {
        Known::new(Arc::new(
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
        let known = known(&[("always", &document("always")), ("ends", &ends), ("rotated", &rotated)]);
        let at = |secret: &str, second| {
            known.find(&hash(secret.as_bytes()), Timestamp::from_secs(second)).map(|holder| holder.name.to_string())
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
        let known = super::tests::known(&[("short", &short)]);
        assert_eq!(known.find(&hash(b"before"), Timestamp::from_secs(100)), None);
        assert!(known.find(&hash(b"before"), Timestamp::from_secs(99)).is_some());
    }

    #[test]
    fn hashes_that_begin_alike_are_told_apart() {
        let mut near = hash(b"one");
        near[31] ^= 1;
        let known = known(&[("near", &TokenDocument { hash: to_hex(&near), ..document("") })]);
        assert_eq!(known.find(&hash(b"one"), Timestamp::from_secs(1)), None);
        assert!(known.find(&near, Timestamp::from_secs(1)).is_some());
        assert!(same(&near, &near.clone()));
        for at in 0..32 {
            let mut other = near;
            other[at] ^= 0x80;
            assert!(!same(&near, &other), "{at}");
        }
    }

    #[test]
    fn what_can_not_be_read_lets_nobody_in() {
        let tokens = [
            ("a", "{}"),
            ("b", "?"),
            ("c", r#"{"hash":"xyz","scopes":["read"],"created_by":"","created_at":"1970-01-01T00:00:01Z"}"#),
        ];
        let known =
            Known::new(Arc::new(tokens.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()));
        assert!(known.entries.is_empty());
        let holder = self::known(&[("t", &document("s"))]);
        let holder = holder.find(&hash(b"s"), Timestamp::from_secs(1)).cloned();
        assert_eq!(holder.map(|holder| holder.scopes), Some([Scope::Read].into_iter().collect()));
    }

    #[test]
    fn secrets_are_long_and_never_twice_the_same() {
        let (one, other) = (drawn().unwrap(), drawn().unwrap());
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
