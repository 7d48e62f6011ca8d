//! What a key is called, in bounded texts.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::key::{Home, Key, Secret, Value};

/// A key of a rule: what is shown of it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Domain, rule and key, one after the other.
    text: Arc<str>,
    rule_at: u16,
    key_at: u16,
    caller: Option<(u16, u16)>,
}

/// The longest name of a domain or rule, in bytes. Longer ones are cut.
const LONGEST_RULE: usize = 96;
/// The longest text of a key, in bytes, before it is cut and ends in a mark.
const LONGEST_KEY: usize = 128;

/// Marks of texts that are cut are the same on every server, so that their lists can be joined.
const MARKS: Secret = Secret(0x746f_6c6c_6761_7465, 0x6d61_726b_732f_7631);

impl Name {
    /// Of a key, of this caller.
    pub fn new(domain: &str, rule: &str, key: &str, caller: Option<&str>) -> Name {
        let place = caller.and_then(|caller| key.find(caller).map(|at| at..at + caller.len()));
        Name::written(&mut String::new(), domain, rule, |text| {
            text.push_str(key);
            place
        })
    }

    /// Of a counter. `text` is room to write in.
    pub(crate) fn of(text: &mut String, key: &Key<'_>) -> Name {
        let caller = match key.scope().home() {
            Home::Caller(place) => Some(place),
            Home::Own => None,
        };
        Name::written(text, key.scope().domain(), key.scope().rule(), |text| {
            let (begun, mut place) = (text.len(), None);
            for (number, value) in key.values().iter().enumerate() {
                if number > 0 {
                    text.push_str(", ");
                }
                let at = text.len() - begun;
                match value {
                    Value::Text(value) => text.push_str(value),
                    // Writing to a String can't fail.
                    other => drop(write!(text, "{other}")),
                }
                if caller == Some(number) {
                    place = Some(at..text.len() - begun);
                }
            }
            place
        })
    }

    /// `key` writes the key's text, and says where in it the caller is.
    fn written(
        text: &mut String,
        domain: &str,
        rule: &str,
        key: impl FnOnce(&mut String) -> Option<Range<usize>>,
    ) -> Name {
        text.clear();
        text.push_str(domain);
        cut(text, 0, LONGEST_RULE);
        let rule_at = text.len();
        text.push_str(rule);
        cut(text, rule_at, LONGEST_RULE);
        let key_at = text.len();
        let place = key(text);
        cut(text, key_at, LONGEST_KEY);
        let last = text.len() - key_at;
        let caller = place.map(|place| (place.start.min(last) as u16, place.end.min(last) as u16));
        Name { text: (&**text).into(), rule_at: rule_at as u16, key_at: key_at as u16, caller }
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

    /// The value among them that is the caller.
    pub fn caller(&self) -> Option<&str> {
        let (from, to) = self.caller?;
        self.key().get(usize::from(from)..usize::from(to))
    }

    pub(crate) fn parts(&self) -> [&str; 3] {
        [self.domain(), self.rule(), self.key()]
    }

    /// A digest that is the same on every server.
    pub(crate) fn digest(&self) -> u128 {
        self.parts().into_iter().fold(0, |before, part| Value::Text(part).digest(MARKS, before))
    }

    /// Bytes that it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + 2 * size_of::<usize>()
    }
}

/// Cuts what was written from `from` on, and marks it with a digest of the whole, so that texts that begin alike stay apart.
fn cut(text: &mut String, from: usize, longest: usize) {
    if text.len() - from <= longest {
        return;
    }
    let digest = Value::Text(&text[from..]).digest(MARKS, 0) as u64;
    let end = (from..=from + longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(from);
    text.truncate(end);
    let _ = write!(text, "…{digest:016x}");
}
