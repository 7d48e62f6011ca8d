//! Bounded names of keys.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::key::{HashSecret, Home, Key, Value};

/// The displayed name of a rule's key. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyName {
    /// Domain, rule and key, concatenated.
    text: Arc<str>,
    rule_at: u16,
    key_at: u16,
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
        KeyName::build(&mut String::new(), domain, rule, |text| {
            text.push_str(key);
            place
        })
    }

    /// The name of a counter. `text` is a reusable buffer.
    pub(crate) fn from_key(text: &mut String, key: &Key<'_>) -> KeyName {
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
                match value {
                    Value::Text(value) => text.push_str(value),
                    // Writing to a String can't fail.
                    other => drop(write!(text, "{other}")),
                }
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
        KeyName { text: (&**text).into(), rule_at: rule_at as u16, key_at: key_at as u16, caller }
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
