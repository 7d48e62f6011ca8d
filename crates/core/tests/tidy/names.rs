//! Names of types, and words that the glossary replaces.

use std::collections::BTreeMap;

use crate::checks::Findings;
use crate::source::code;

/// How many types may have the same name. A name that is used more often says nothing.
pub(crate) const MAX_SAME_NAME: usize = 2;

/// Words that say nothing of what a thing is, and what to write instead. See `docs/GLOSSARY.md`.
const REPLACED: [(&str, &str); 6] = [
    ("told", "reported, sent, response"),
    ("asked", "requested, request, query"),
    ("kept", "stored, retained, saved"),
    ("sought", "lookup, target"),
    ("beside", "next to, with"),
    ("wanted", "required, requested, expected"),
];

/// Types that are declared under one name more often than [`MAX_SAME_NAME`], with where.
pub(crate) fn repeated_types<'f>(files: impl Iterator<Item = (&'f str, &'f str)>) -> Findings {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files {
        for (at, line) in code(text).lines().enumerate() {
            if let Some(name) = declared(line) {
                places.entry(name.to_owned()).or_default().push(format!("{path}:{}", at + 1));
            }
        }
    }
    let repeated = places.into_iter().filter(|(_, places)| places.len() > MAX_SAME_NAME);
    repeated.map(|(name, places)| format!("{} types are called {name}: {}", places.len(), places.join(", "))).collect()
}

/// The type that a line declares, outside of functions and macros.
fn declared(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let line = line.trim_start_matches(' ');
    let rest = ["struct ", "enum ", "trait ", "union "].into_iter().find_map(|keyword| line.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

/// Words that the glossary replaces, in names and in prose.
pub(crate) fn uses_the_glossary(_: &str, text: &str) -> Findings {
    let mut findings = Findings::new();
    for (at, line) in text.lines().enumerate() {
        for word in words(line) {
            if let Some((word, instead)) = REPLACED.iter().find(|(replaced, _)| word.eq_ignore_ascii_case(replaced)) {
                findings
                    .push(format!(":{}: `{word}`: write what it is instead ({instead}); see docs/GLOSSARY.md", at + 1));
            }
        }
    }
    findings
}

/// The words of a line: those of prose, and the parts of names in snake case and camel case.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(camel_parts).filter(|word| !word.is_empty())
}

fn camel_parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, bytes) = (0, name.as_bytes());
    for at in 1..bytes.len() {
        if bytes[at].is_ascii_uppercase() && bytes[at - 1].is_ascii_lowercase() {
            parts.push(&name[start..at]);
            start = at;
        }
    }
    parts.push(&name[start..]);
    parts
}
