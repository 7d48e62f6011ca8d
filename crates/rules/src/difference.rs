//! The difference between two texts of a rule, for display.

use crate::layer::LayerRule;
use crate::yaml::{self, Yaml, YamlEntry, YamlKind, json};

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueChange {
    /// The path: keys separated by dots, indices in brackets, as in `limit.free` and `key[0]`. Empty for the whole.
    pub path: String,
    /// The previous value: a text as it is, a list or a map as JSON. `None` if it was absent.
    pub before: Option<String>,
    /// The new value.
    pub after: Option<String>,
}

/// The differences between two texts, each JSON or YAML, by content and not by formatting. An empty text has no
/// content. If a text is invalid, or longer than a rule may be, the whole differs.
pub fn difference(before: &str, after: &str) -> Vec<ValueChange> {
    let (Some(before_values), Some(after_values)) = (values(before), values(after)) else {
        let whole = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
        let changed = ValueChange { path: String::new(), before: whole(before), after: whole(after) };
        return if before == after { Vec::new() } else { vec![changed] };
    };
    let mut found = Vec::new();
    compare("", &before_values, &after_values, &mut found);
    found
}

/// The content of a text; an empty text is an empty map.
fn values(text: &str) -> Option<Yaml> {
    if text.len() > LayerRule::MAX_BYTES {
        return None;
    }
    let (mut values, faults) = json::read(text).unwrap_or_else(|| yaml::read(text));
    values.retain(|value| !value.is_null());
    match (values.len(), faults.is_empty()) {
        (0, true) => Some(Yaml { line: 1, kind: YamlKind::Map(Vec::new()) }),
        (1, true) => values.pop(),
        _ => None,
    }
}

/// The depth is bounded by the parser.
fn compare(path: &str, before: &Yaml, after: &Yaml, found: &mut Vec<ValueChange>) {
    match (&before.kind, &after.kind) {
        (YamlKind::Map(was), YamlKind::Map(is)) => {
            let find = |entries: &[YamlEntry], key: &str| entries.iter().position(|entry| entry.key.text == key);
            for entry in was {
                let path = below(path, &entry.key.text);
                match find(is, &entry.key.text) {
                    Some(at) => compare(&path, &entry.value, &is[at].value, found),
                    None => found.push(ValueChange { path, before: Some(shown(&entry.value)), after: None }),
                }
            }
            for entry in is.iter().filter(|entry| find(was, &entry.key.text).is_none()) {
                let path = below(path, &entry.key.text);
                found.push(ValueChange { path, before: None, after: Some(shown(&entry.value)) });
            }
        }
        (YamlKind::List(was), YamlKind::List(is)) => {
            for at in 0..was.len().max(is.len()) {
                let path = format!("{path}[{at}]");
                match (was.get(at), is.get(at)) {
                    (Some(was), Some(is)) => compare(&path, was, is, found),
                    (was, is) => found.push(ValueChange { path, before: was.map(shown), after: is.map(shown) }),
                }
            }
        }
        (YamlKind::Scalar(was), YamlKind::Scalar(is)) if was.text == is.text && was.is_null() == is.is_null() => {}
        // `~` and `null` are the same.
        _ if before.is_null() && after.is_null() => {}
        _ => found.push(ValueChange { path: path.to_owned(), before: Some(shown(before)), after: Some(shown(after)) }),
    }
}

fn shown(value: &Yaml) -> String {
    match &value.kind {
        YamlKind::Scalar(scalar) if !scalar.is_null() => scalar.text.clone(),
        _ => json::write(value),
    }
}

fn below(path: &str, key: &str) -> String {
    let word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if word { key.to_owned() } else { json::write_text(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
