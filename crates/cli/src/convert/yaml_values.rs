//! Values of a YAML configuration, which may lack anything.

use tollgate_rules::yaml::{self, Yaml, YamlKind};

use super::Conversion;

/// The documents of a configuration. Faults become notes.
pub(super) fn documents(text: &str, conversion: &mut Conversion) -> Vec<Yaml> {
    let (documents, faults) = yaml::read_either(text);
    for (line, fault) in faults {
        conversion.note(line, fault.to_string());
    }
    documents
}

/// The value of a key, if there is a map with it.
pub(super) fn get<'y>(value: &'y Yaml, key: &str) -> Option<&'y Yaml> {
    let YamlKind::Map(entries) = &value.kind else { return None };
    entries.iter().find(|entry| entry.key.text == key).map(|entry| &entry.value)
}

/// The items of a list under a key.
pub(super) fn items<'y>(value: &'y Yaml, key: &str) -> &'y [Yaml] {
    match get(value, key).map(|value| &value.kind) {
        Some(YamlKind::List(items)) => items,
        _ => &[],
    }
}

/// A text, number or boolean as it is written.
pub(super) fn text(value: &Yaml) -> Option<&str> {
    match &value.kind {
        YamlKind::Scalar(scalar) if !scalar.is_null() => Some(&scalar.text),
        _ => None,
    }
}

/// A whole number.
pub(super) fn number(value: &Yaml) -> Option<u64> {
    text(value)?.parse().ok()
}

/// The texts of a list, or a text alone.
pub(super) fn texts(value: &Yaml) -> Vec<&str> {
    match &value.kind {
        YamlKind::List(items) => items.iter().filter_map(text).collect(),
        _ => text(value).into_iter().collect(),
    }
}
