//! Reads values of one file as what they should be, and keeps what is wrong with them.

use std::sync::Arc;

use tollgate_core::Request;

use crate::limit_text;
use crate::load::keys::Section;
use crate::model::Place;
use crate::problem::{Fault, Problems, choose, quoted};
use crate::yaml::{Entry, Kind, Scalar, Yaml};

/// Reads one file. Every method that returns an `Option` has told what is wrong when it returns `None`.
pub(super) struct Reader<'p> {
    file: Arc<str>,
    problems: &'p mut Problems,
}

/// A map whose keys all belong there.
#[derive(Clone, Copy)]
pub(super) struct Fields<'y> {
    pub(super) line: usize,
    entries: &'y [Entry],
}

/// The longest name of a rule or a tier.
const LONGEST_NAME: usize = 128;

// === impl Fields ===

impl<'y> Fields<'y> {
    pub(super) fn get(&self, key: &str) -> Option<&'y Yaml> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The value, where there is one: envoyproxy/ratelimit takes `key: null` for no key at all.
    pub(super) fn get_given(&self, key: &str) -> Option<&'y Yaml> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'y Entry> {
        self.entries.iter().find(|entry| entry.key.text == key)
    }
}

// === impl Reader ===

impl<'p> Reader<'p> {
    pub(super) fn new(file: Arc<str>, problems: &'p mut Problems) -> Reader<'p> {
        Reader { file, problems }
    }

    pub(super) fn error(&mut self, line: usize, message: impl Into<String>, remedy: impl Into<String>) {
        self.fault(line, Fault::new(message, remedy));
    }

    pub(super) fn fault(&mut self, line: usize, fault: Fault) {
        self.problems.error(&self.file, line, fault);
    }

    pub(super) fn warning(&mut self, line: usize, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.warning(&self.file, line, Fault::new(message, remedy));
    }

    /// Keeps a fault that was found in the value of a key.
    pub(super) fn sound<T>(&mut self, line: usize, what: &str, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.error(line, format!("`{what}`: {}", fault.message), fault.remedy);
                None
            }
        }
    }

    pub(super) fn place(&self, line: usize) -> Place {
        Place { file: self.file.clone(), line }
    }

    /// A map of a known kind. Keys that don't belong there are told, and the others can still be read.
    pub(super) fn fields<'y>(&mut self, value: &'y Yaml, section: &Section) -> Option<Fields<'y>> {
        let Kind::Map(entries) = &value.kind else {
            let keys = section.keys.iter().copied().flatten().copied().collect::<Vec<_>>().join(", ");
            let message = format!("{} must be a map, not {}", section.name, value.described());
            self.error(value.line, message, format!("write `key: value` lines; the keys are {keys}"));
            return None;
        };
        for entry in entries.iter().filter(|entry| !section.has(&entry.key.text)) {
            if self.problems.are_enough() {
                break;
            }
            self.fault(entry.line, section.refuse(&entry.key.text));
        }
        Some(Fields { line: value.line, entries })
    }

    /// A map whose keys are the file's own names.
    pub(super) fn entries<'y>(&mut self, value: &'y Yaml, what: &str, example: &str) -> Option<&'y [Entry]> {
        if let Kind::Map(entries) = &value.kind {
            return Some(entries);
        }
        self.wrong(value, what, "a map", format!("write for instance {example}"))
    }

    pub(super) fn list<'y>(&mut self, value: &'y Yaml, what: &str, example: &str) -> Option<&'y [Yaml]> {
        if let Kind::List(items) = &value.kind {
            return Some(items);
        }
        self.wrong(value, what, "a list", format!("write for instance {example}"))
    }

    /// A text that is there and not empty.
    pub(super) fn text<'y>(&mut self, value: &'y Yaml, what: &str) -> Option<&'y str> {
        match &value.kind {
            Kind::Scalar(scalar) if scalar.is_null() => {
                self.error(value.line, format!("`{what}` has no value"), "write one");
                None
            }
            Kind::Scalar(scalar) if scalar.text.is_empty() => {
                self.error(value.line, format!("`{what}` is empty"), "write a text");
                None
            }
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => self.wrong(value, what, "a text", "write a single value"),
        }
    }

    /// The name of an attribute, or a value that one may have.
    pub(super) fn attribute(&mut self, value: &Yaml, what: &str) -> Option<String> {
        let text = self.text(value, what)?;
        self.within_requests(value.line, text, what)
    }

    /// A text that a request can carry: another one would never be met.
    pub(super) fn within_requests(&mut self, line: usize, text: &str, what: &str) -> Option<String> {
        if text.len() <= Request::LONGEST_TEXT {
            return Some(text.to_owned());
        }
        let message = format!("`{what}` is longer than what a request may carry: {}", quoted(text));
        self.error(line, message, format!("write at most {} bytes", Request::LONGEST_TEXT));
        None
    }

    /// A name that can stand in headers, metrics and logs.
    pub(super) fn name(&mut self, value: &Yaml, what: &str) -> Option<String> {
        let text = self.text(value, what)?;
        self.as_name(value.line, text, what)
    }

    pub(super) fn as_name(&mut self, line: usize, text: &str, what: &str) -> Option<String> {
        let printable = text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text;
        if printable && !text.is_empty() && text.len() <= LONGEST_NAME {
            return Some(text.to_owned());
        }
        let message = format!("`{what}`: {} can't be a name", quoted(text));
        self.error(line, message, format!("write 1 to {LONGEST_NAME} printable ASCII characters"));
        None
    }

    pub(super) fn boolean(&mut self, value: &Yaml, what: &str) -> Option<bool> {
        let scalar = self.scalar(value, what, "true or false")?;
        let read = scalar.as_bool();
        read.or_else(|| self.wrong(value, what, "true or false", "write `true` or `false`"))
    }

    /// A whole number of a range.
    pub(super) fn number(&mut self, value: &Yaml, what: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let (least, most) = (*range.start(), *range.end());
        let scalar = self.scalar(value, what, "a whole number")?;
        match limit_text::number(&scalar.text) {
            Ok(number) if range.contains(&number) => Some(number),
            Ok(_) => {
                let remedy = format!("write a number from {least} to {most}");
                self.wrong(value, what, "a number of its range", remedy)
            }
            Err(_) => self.wrong(value, what, "a whole number", format!("write a number from {least} to {most}")),
        }
    }

    /// One of a set of words.
    pub(super) fn word<T: Copy>(&mut self, value: &Yaml, what: &str, words: &[(&str, T)]) -> Option<T> {
        let scalar = self.scalar(value, what, "a word")?;
        let known = words.iter().find(|(word, _)| *word == scalar.text);
        if known.is_none() {
            let remedy = choose(&scalar.text, words.iter().map(|(word, _)| *word));
            self.error(value.line, format!("`{what}` can't be {}", value.described()), remedy);
        }
        known.map(|(_, meaning)| *meaning)
    }

    fn scalar<'y>(&mut self, value: &'y Yaml, what: &str, kind: &str) -> Option<&'y Scalar> {
        match &value.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => self.wrong(value, what, kind, "write a single value"),
        }
    }

    /// Tells that a value is not what it should be.
    pub(super) fn wrong<T>(&mut self, value: &Yaml, what: &str, kind: &str, remedy: impl Into<String>) -> Option<T> {
        self.error(value.line, format!("`{what}` must be {kind}, not {}", value.described()), remedy);
        None
    }
}
