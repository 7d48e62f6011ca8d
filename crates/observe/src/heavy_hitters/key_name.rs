//! Bounded names of keys.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::KeySecret;
use tollgate_core::key::{HashSecret, Home, Key, Value};

use crate::display;

/// The name of a rule's key, with private values masked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KeyName {
    /// Domain, rule and key, concatenated.
    text: Arc<str>,
    rule_at: u16,
    key_at: u16,
    caller: Option<(u16, u16)>,
    /// The key without masks, for whoever may see it. Not part of the name: it is known only where the key was counted.
    clear: Option<Arc<ClearKey>>,
}

/// A key in clear.
#[derive(Debug)]
struct ClearKey {
    key: Box<str>,
    caller: Option<Box<str>>,
}

/// The maximal length of a domain or rule, in bytes. Longer ones are truncated.
const MAX_RULE_BYTES: usize = 96;
/// The maximal length of a key's text, in bytes. Longer ones are truncated and end in a digest.
const MAX_KEY_BYTES: usize = 128;

/// Digests of truncated texts are the same on every server, so that their lists can be merged.
const DIGEST_SECRET: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x6d61_726b_732f_7631);

impl KeyName {
    /// The name of a key and its caller.
    pub fn new(domain: &str, rule: &str, key: &str, caller: Option<&str>) -> KeyName {
        let place = caller.and_then(|caller| key.find(caller).map(|at| at..at + caller.len()));
        KeyName::build(&mut String::new(), domain, rule, |text| {
            text.push_str(key);
            place
        })
    }

    /// The name of a counter, with private values masked if there is a secret. `text` is a reusable buffer.
    pub(crate) fn from_key(text: &mut String, key: &Key<'_>, secret: Option<KeySecret>) -> KeyName {
        let masked = KeyName::with_values(text, key, secret);
        if secret.is_none() || key.scope().private().is_empty() {
            return masked;
        }
        let clear = KeyName::with_values(text, key, None);
        let clear = ClearKey { key: clear.key().into(), caller: clear.caller().map(Into::into) };
        KeyName { clear: Some(Arc::new(clear)), ..masked }
    }

    fn with_values(text: &mut String, key: &Key<'_>, secret: Option<KeySecret>) -> KeyName {
        let private = key.scope().private();
        let caller = match key.scope().home() {
            Home::Caller(place) => Some(place),
            Home::Own => None,
        };
        KeyName::build(text, key.scope().domain(), key.scope().rule(), |text| {
            let (start, mut place) = (text.len(), None);
            for (number, value) in key.values().iter().enumerate() {
                if number > 0 {
                    text.push_str(", ");
                }
                let at = text.len() - start;
                display::value(text, *value, secret.filter(|_| private.contains(number)));
                if caller == Some(number) {
                    place = Some(at..text.len() - start);
                }
            }
            place
        })
    }

    /// `key` writes the key's text and returns the range of the caller in it.
    fn build(
        text: &mut String,
        domain: &str,
        rule: &str,
        key: impl FnOnce(&mut String) -> Option<Range<usize>>,
    ) -> KeyName {
        text.clear();
        text.push_str(domain);
        truncate_with_digest(text, 0, MAX_RULE_BYTES);
        let rule_at = text.len();
        text.push_str(rule);
        truncate_with_digest(text, rule_at, MAX_RULE_BYTES);
        let key_at = text.len();
        let place = key(text);
        truncate_with_digest(text, key_at, MAX_KEY_BYTES);
        let last = text.len() - key_at;
        let caller = place.map(|place| (place.start.min(last) as u16, place.end.min(last) as u16));
        KeyName { text: (&**text).into(), rule_at: rule_at as u16, key_at: key_at as u16, caller, clear: None }
    }

    /// The same name, with the caller in clear.
    pub(crate) fn with_clear_caller(self, caller: &str) -> KeyName {
        KeyName { clear: Some(Arc::new(ClearKey { key: caller.into(), caller: Some(caller.into()) })), ..self }
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        &self.text[..usize::from(self.rule_at)]
    }

    /// The rule.
    pub fn rule(&self) -> &str {
        &self.text[usize::from(self.rule_at)..usize::from(self.key_at)]
    }

    /// The key's values.
    pub fn key(&self) -> &str {
        &self.text[usize::from(self.key_at)..]
    }

    /// The value that identifies the caller.
    pub fn caller(&self) -> Option<&str> {
        let (from, to) = self.caller?;
        self.key().get(usize::from(from)..usize::from(to))
    }

    /// The key's values in clear, as far as they are known here.
    pub fn clear_key(&self) -> &str {
        self.clear.as_ref().map_or(self.key(), |clear| &clear.key)
    }

    /// The value that identifies the caller in clear, as far as it is known here.
    pub fn clear_caller(&self) -> Option<&str> {
        self.clear.as_ref().map_or(self.caller(), |clear| clear.caller.as_deref())
    }

    pub(crate) fn parts(&self) -> [&str; 3] {
        [self.domain(), self.rule(), self.key()]
    }

    /// A digest that is the same on every server.
    pub(crate) fn digest(&self) -> u128 {
        self.parts().into_iter().fold(0, |before, part| Value::Text(part).digest(DIGEST_SECRET, before))
    }

    /// Heap memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let clear = self.clear.as_ref().map_or(0, |clear| {
            size_of::<ClearKey>() + clear.key.len() + clear.caller.as_ref().map_or(0, |caller| caller.len())
        });
        self.text.len() + 2 * size_of::<usize>() + clear
    }
}

impl PartialEq for KeyName {
    fn eq(&self, other: &KeyName) -> bool {
        (&self.text, self.rule_at, self.key_at, self.caller) == (&other.text, other.rule_at, other.key_at, other.caller)
    }
}

impl Eq for KeyName {}

impl Hash for KeyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.text, self.rule_at, self.key_at, self.caller).hash(state);
    }
}

/// Truncates the text after `from` and appends a digest of the whole, so that texts with a common prefix stay distinct.
fn truncate_with_digest(text: &mut String, from: usize, max_bytes: usize) {
    if text.len() - from <= max_bytes {
        return;
    }
    let digest = Value::Text(&text[from..]).digest(DIGEST_SECRET, 0) as u64;
    let end = (from..=from + max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(from);
    text.truncate(end);
    let _ = write!(text, "…{digest:016x}");
}
