//! What differs between two texts of a rule, for people.

use crate::layer::LayerRule;
use crate::yaml::{self, Entry, Kind, Yaml, json};

/// A value that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Which: keys parted by dots, places of lists in brackets, as `limit.free` and `key[0]`; empty for the whole.
    pub path: String,
    /// What it was: a text as it is, a list or a map as JSON; `None` if it was not there.
    pub before: Option<String>,
    /// What it is.
    pub after: Option<String>,
}

/// What differs between two texts, each JSON or YAML, by what they say and not by how they are written. An empty text says nothing.
/// Of a text that can't be read, or is longer than a rule may be, all differs.
pub fn difference(before: &str, after: &str) -> Vec<Changed> {
    let (Some(before_values), Some(after_values)) = (values(before), values(after)) else {
        let whole = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
        let changed = Changed { path: String::new(), before: whole(before), after: whole(after) };
        return if before == after { Vec::new() } else { vec![changed] };
    };
    let mut found = Vec::new();
    compare("", &before_values, &after_values, &mut found);
    found
}

/// What a text says; nothing at all as a map without keys.
fn values(text: &str) -> Option<Yaml> {
    if text.len() > LayerRule::LONGEST {
        return None;
    }
    let (mut values, faults) = json::read(text).unwrap_or_else(|| yaml::read(text));
    values.retain(|value| !value.is_null());
    match (values.len(), faults.is_empty()) {
        (0, true) => Some(Yaml { line: 1, kind: Kind::Map(Vec::new()) }),
        (1, true) => values.pop(),
        _ => None,
    }
}

/// How deep this goes is bounded by the reader.
fn compare(path: &str, before: &Yaml, after: &Yaml, found: &mut Vec<Changed>) {
    match (&before.kind, &after.kind) {
        (Kind::Map(was), Kind::Map(is)) => {
            let find = |entries: &[Entry], key: &str| entries.iter().position(|entry| entry.key.text == key);
            for entry in was {
                let path = below(path, &entry.key.text);
                match find(is, &entry.key.text) {
                    Some(at) => compare(&path, &entry.value, &is[at].value, found),
                    None => found.push(Changed { path, before: Some(shown(&entry.value)), after: None }),
                }
            }
            for entry in is.iter().filter(|entry| find(was, &entry.key.text).is_none()) {
                let path = below(path, &entry.key.text);
                found.push(Changed { path, before: None, after: Some(shown(&entry.value)) });
            }
        }
        (Kind::List(was), Kind::List(is)) => {
            for at in 0..was.len().max(is.len()) {
                let path = format!("{path}[{at}]");
                match (was.get(at), is.get(at)) {
                    (Some(was), Some(is)) => compare(&path, was, is, found),
                    (was, is) => found.push(Changed { path, before: was.map(shown), after: is.map(shown) }),
                }
            }
        }
        (Kind::Scalar(was), Kind::Scalar(is)) if was.text == is.text && was.is_null() == is.is_null() => {}
        // `~` and `null` are the same nothing.
        _ if before.is_null() && after.is_null() => {}
        _ => found.push(Changed { path: path.to_owned(), before: Some(shown(before)), after: Some(shown(after)) }),
    }
}

fn shown(value: &Yaml) -> String {
    match &value.kind {
        Kind::Scalar(scalar) if !scalar.is_null() => scalar.text.clone(),
        _ => json::write(value),
    }
}

fn below(path: &str, key: &str) -> String {
    let word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if word { key.to_owned() } else { json::write_text(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
