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
    /// Domain, rule and key, concatenated; then the key without masks, if it has any. That one is not part of the name: it
    /// is known only where the key was counted, for whoever may see it.
    text: Arc<str>,
    rule_at: u16,
    key_at: u16,
    caller: Option<(u16, u16)>,
    clear: Option<ClearKey>,
}

/// A key in clear.
#[derive(Clone, Copy, Debug)]
struct ClearKey {
    at: u16,
    caller: Option<(u16, u16)>,
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
        let write = |text: &mut String| {
            text.push_str(key);
            place
        };
        KeyName::build(&mut String::new(), domain, rule, write, None::<fn(&mut String) -> _>)
    }

    /// The name of a counter of a rule, with private values masked if there is a secret. `text` is a reusable buffer.
    pub(crate) fn from_key(text: &mut String, rule: &str, key: &Key<'_>, secret: Option<KeySecret>) -> KeyName {
        let scope = key.scope();
        let clear =
            (secret.is_some() && !scope.private().is_empty()).then_some(|text: &mut String| values(text, key, None));
        KeyName::build(text, scope.domain(), rule, |text| values(text, key, secret), clear)
    }

    /// `key` and `clear` write the key's text and return the range of the caller in it.
    fn build(
        text: &mut String,
        domain: &str,
        rule: &str,
        key: impl FnOnce(&mut String) -> Option<Range<usize>>,
        clear: Option<impl FnOnce(&mut String) -> Option<Range<usize>>>,
    ) -> KeyName {
        text.clear();
        text.push_str(domain);
        truncate_with_digest(text, 0, MAX_RULE_BYTES);
        let rule_at = text.len();
        text.push_str(rule);
        truncate_with_digest(text, rule_at, MAX_RULE_BYTES);
        let key_at = text.len();
        let caller = write_key(text, key);
        let clear = clear.map(|clear| ClearKey { at: text.len() as u16, caller: write_key(text, clear) });
        KeyName { text: (&**text).into(), rule_at: rule_at as u16, key_at: key_at as u16, caller, clear }
    }

    /// The same name, with the caller in clear.
    pub(crate) fn with_clear_caller(self, caller: &str) -> KeyName {
        let mut text = self.name().to_owned();
        let at = text.len() as u16;
        let place = write_key(&mut text, |text| {
            text.push_str(caller);
            Some(0..caller.len())
        });
        KeyName { text: text.into(), clear: Some(ClearKey { at, caller: place }), ..self }
    }

    /// Everything but the key in clear.
    fn name(&self) -> &str {
        &self.text[..self.clear.map_or(self.text.len(), |clear| usize::from(clear.at))]
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
        &self.name()[usize::from(self.key_at)..]
    }

    /// The value that identifies the caller.
    pub fn caller(&self) -> Option<&str> {
        part(self.key(), self.caller)
    }

    /// The key's values in clear, as far as they are known here.
    pub fn clear_key(&self) -> &str {
        self.clear.map_or(self.key(), |clear| &self.text[usize::from(clear.at)..])
    }

    /// The value that identifies the caller in clear, as far as it is known here.
    pub fn clear_caller(&self) -> Option<&str> {
        self.clear.map_or(self.caller(), |clear| part(self.clear_key(), clear.caller))
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
        self.text.len() + 2 * size_of::<usize>()
    }
}

impl PartialEq for KeyName {
    fn eq(&self, other: &KeyName) -> bool {
        (self.name(), self.rule_at, self.key_at, self.caller)
            == (other.name(), other.rule_at, other.key_at, other.caller)
    }
}

impl Eq for KeyName {}

impl Hash for KeyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name(), self.rule_at, self.key_at, self.caller).hash(state);
    }
}

/// Writes the values of a key, with private ones masked if there is a secret, and returns the range of the caller.
fn values(text: &mut String, key: &Key<'_>, secret: Option<KeySecret>) -> Option<Range<usize>> {
    let private = key.scope().private();
    let caller = match key.scope().home() {
        Home::Caller(place) => Some(place),
        Home::Own => None,
    };
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
}

/// Writes a key, truncated if it is long, and returns the range of the caller in it.
fn write_key(text: &mut String, write: impl FnOnce(&mut String) -> Option<Range<usize>>) -> Option<(u16, u16)> {
    let start = text.len();
    let place = write(text);
    truncate_with_digest(text, start, MAX_KEY_BYTES);
    let last = text.len() - start;
    place.map(|place| (place.start.min(last) as u16, place.end.min(last) as u16))
}

fn part(key: &str, range: Option<(u16, u16)>) -> Option<&str> {
    let (from, to) = range?;
    key.get(usize::from(from)..usize::from(to))
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
