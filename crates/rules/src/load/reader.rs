//! Reads the values of one file as the expected types, and collects the errors.

use std::sync::Arc;

use tollgate_core::Request;

use crate::limit_text;
use crate::load::keys::Section;
use crate::model::{RuleOrigin, SourceLocation};
use crate::problem::{Problems, TextFault, choose, quoted};
use crate::yaml::{Scalar, Yaml, YamlEntry, YamlKind};

/// Reads one file. Every method that returns `None` has reported the error.
pub(super) struct FileReader<'p> {
    file: Arc<RuleOrigin>,
    problems: &'p mut Problems,
}

/// A map whose keys are all valid.
#[derive(Clone, Copy)]
pub(super) struct Fields<'y> {
    pub(super) line: usize,
    entries: &'y [YamlEntry],
}

/// The maximum length of the name of a rule or a tier, in characters.
const MAX_NAME_CHARS: usize = 128;

// === impl Fields ===

impl<'y> Fields<'y> {
    pub(super) fn get(&self, key: &str) -> Option<&'y Yaml> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The value, unless it is null: envoyproxy/ratelimit treats `key: null` like an absent key.
    pub(super) fn get_given(&self, key: &str) -> Option<&'y Yaml> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entries(&self) -> &'y [YamlEntry] {
        self.entries
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'y YamlEntry> {
        self.entries.iter().find(|entry| entry.key.text == key)
    }
}

// === impl Reader ===

impl<'p> FileReader<'p> {
    pub(super) fn new(file: Arc<RuleOrigin>, problems: &'p mut Problems) -> FileReader<'p> {
        FileReader { file, problems }
    }

    pub(super) fn error(&mut self, line: usize, message: impl Into<String>, remedy: impl Into<String>) {
        self.fault(line, TextFault::new(message, remedy));
    }

    pub(super) fn fault(&mut self, line: usize, fault: TextFault) {
        self.problems.error(&self.file, line, fault);
    }

    pub(super) fn warning(&mut self, line: usize, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.warning(&self.file, line, TextFault::new(message, remedy));
    }

    /// Reports an error in the value of a key.
    pub(super) fn sound<T>(&mut self, line: usize, what: &str, result: Result<T, TextFault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.error(line, format!("`{what}`: {}", fault.message), fault.remedy);
                None
            }
        }
    }

    pub(super) fn place(&self, line: usize) -> SourceLocation {
        SourceLocation { file: self.file.clone(), line }
    }

    /// A map of a known section. Unknown keys are reported, and the others can still be read.
    pub(super) fn fields<'y>(&mut self, value: &'y Yaml, section: &Section) -> Option<Fields<'y>> {
        let YamlKind::Map(entries) = &value.kind else {
            let keys = section.keys.iter().copied().flatten().copied().collect::<Vec<_>>().join(", ");
            let message = format!("{} must be a map, not {}", section.name, value.described());
            self.error(value.line, message, format!("write `key: value` lines; the keys are {keys}"));
            return None;
        };
        for entry in entries.iter().filter(|entry| !section.has(&entry.key.text)) {
            if self.problems.is_full() {
                break;
            }
            self.fault(entry.line, section.refuse(entry, entries));
        }
        Some(Fields { line: value.line, entries })
    }

    /// A map whose keys are names from the file.
    pub(super) fn entries<'y>(&mut self, value: &'y Yaml, what: &str, example: &str) -> Option<&'y [YamlEntry]> {
        if let YamlKind::Map(entries) = &value.kind {
            return Some(entries);
        }
        self.wrong(value, what, "a map", format!("write for instance {example}"))
    }

    pub(super) fn list<'y>(&mut self, value: &'y Yaml, what: &str, example: &str) -> Option<&'y [Yaml]> {
        if let YamlKind::List(items) = &value.kind {
            return Some(items);
        }
        self.wrong(value, what, "a list", format!("write for instance {example}"))
    }

    /// A text that is not empty.
    pub(super) fn text<'y>(&mut self, value: &'y Yaml, what: &str) -> Option<&'y str> {
        match &value.kind {
            YamlKind::Scalar(scalar) if scalar.is_null() => {
                self.error(value.line, format!("`{what}` has no value"), "write one");
                None
            }
            YamlKind::Scalar(scalar) if scalar.text.is_empty() => {
                self.error(value.line, format!("`{what}` is empty"), "write a text");
                None
            }
            YamlKind::Scalar(scalar) => Some(&scalar.text),
            _ => self.wrong(value, what, "a text", "write a single value"),
        }
    }

    /// The name or a value of an attribute.
    pub(super) fn attribute(&mut self, value: &Yaml, what: &str) -> Option<String> {
        let text = self.text(value, what)?;
        self.within_requests(value.line, text, what)
    }

    /// A text that fits into a request. A longer one would never match.
    pub(super) fn within_requests(&mut self, line: usize, text: &str, what: &str) -> Option<String> {
        if text.len() <= Request::MAX_TEXT_BYTES {
            return Some(text.to_owned());
        }
        let message = format!("`{what}` is longer than what a request may carry: {}", quoted(text));
        self.error(line, message, format!("write at most {} bytes", Request::MAX_TEXT_BYTES));
        None
    }

    /// A name that can be used in headers, metrics and logs.
    pub(super) fn name(&mut self, value: &Yaml, what: &str) -> Option<String> {
        let text = self.text(value, what)?;
        self.as_name(value.line, text, what)
    }

    pub(super) fn as_name(&mut self, line: usize, text: &str, what: &str) -> Option<String> {
        let printable = text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text;
        if printable && !text.is_empty() && text.len() <= MAX_NAME_CHARS {
            return Some(text.to_owned());
        }
        let message = format!("`{what}`: {} can't be a name", quoted(text));
        self.error(line, message, format!("write 1 to {MAX_NAME_CHARS} printable ASCII characters"));
        None
    }

    pub(super) fn boolean(&mut self, value: &Yaml, what: &str) -> Option<bool> {
        let scalar = self.scalar(value, what, "true or false")?;
        let read = scalar.as_bool();
        read.or_else(|| self.wrong(value, what, "true or false", "write `true` or `false`"))
    }

    /// A whole number in a range.
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

    /// One of several keywords.
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
            YamlKind::Scalar(scalar) => Some(scalar),
            _ => self.wrong(value, what, kind, "write a single value"),
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong<T>(&mut self, value: &Yaml, what: &str, kind: &str, remedy: impl Into<String>) -> Option<T> {
        self.error(value.line, format!("`{what}` must be {kind}, not {}", value.described()), remedy);
        None
    }
}
