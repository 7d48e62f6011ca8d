//! Reads maps of a file by their keys. All errors are collected, each with its line and a remedy; a key that nobody
//! read is one of them.

use std::cell::RefCell;

use super::{Yaml, YamlEntry, YamlKind};
use crate::problem::{TextFault, choose, quoted};

/// The errors of a file, as far as they are reported.
#[derive(Debug, Default)]
pub struct Faults(RefCell<Vec<(usize, TextFault)>>);

/// A map of a file, and which of its keys were read.
pub struct Fields<'y> {
    /// The line of its beginning.
    pub line: usize,
    entries: &'y [YamlEntry],
    known: RefCell<Vec<&'static str>>,
    faults: &'y Faults,
}

/// The most errors that are reported.
const MAX_REPORTED: usize = 100;

impl Faults {
    /// Adds an error.
    pub fn push(&self, line: usize, fault: TextFault) {
        let mut faults = self.0.borrow_mut();
        if faults.len() < MAX_REPORTED {
            faults.push((line, fault));
        }
    }

    /// The errors by line.
    pub fn into_sorted(self) -> Vec<(usize, TextFault)> {
        let mut faults = self.0.into_inner();
        faults.sort_by_key(|(line, _)| *line);
        faults
    }

    /// The result, unless it is an error.
    pub fn sound<T>(&self, line: usize, result: Result<T, TextFault>) -> Option<T> {
        result.map_err(|fault| self.push(line, fault)).ok()
    }
}

impl<'y> Fields<'y> {
    /// The fields of a value that must be a map. `what` names it in the error.
    pub fn of(value: &'y Yaml, what: &str, faults: &'y Faults) -> Option<Fields<'y>> {
        match &value.kind {
            YamlKind::Map(entries) => Some(Fields { line: value.line, entries, known: RefCell::default(), faults }),
            _ => {
                let message = format!("{} stands where {what} belongs", value.described());
                faults.push(value.line, TextFault::new(message, "write a map, `key: value`"));
                None
            }
        }
    }

    /// All entries, for maps whose keys are names.
    pub fn entries(&self) -> &'y [YamlEntry] {
        self.entries
    }

    /// Where errors go.
    pub fn faults(&self) -> &'y Faults {
        self.faults
    }

    /// The entry of a key, which is a valid one from now on.
    pub fn entry(&self, key: &'static str) -> Option<&'y YamlEntry> {
        if !self.known.borrow().contains(&key) {
            self.known.borrow_mut().push(key);
        }
        self.entries.iter().find(|entry| entry.key.text == key)
    }

    /// Whether a key is there.
    pub fn has(&self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    /// A value, if it is there and right.
    pub fn read<T>(&self, key: &'static str, read: impl FnOnce(&'y Yaml) -> Result<T, TextFault>) -> Option<T> {
        let entry = self.entry(key)?;
        self.faults.sound(entry.line, read(&entry.value))
    }

    /// The fields of a map within this one.
    pub fn map(&self, key: &'static str) -> Option<Fields<'y>> {
        let entry = self.entry(key)?;
        Fields::of(&entry.value, &format!("the map of `{key}`"), self.faults)
    }

    /// The items of a list. Those beyond the most are an error, and dropped.
    pub fn items(&self, key: &'static str, most: usize) -> &'y [Yaml] {
        let Some(entry) = self.entry(key) else { return &[] };
        let YamlKind::List(items) = &entry.value.kind else {
            let message = format!("{} stands where a list belongs", entry.value.described());
            self.faults.push(entry.line, TextFault::new(message, "begin each item with `- `"));
            return &[];
        };
        if items.len() > most {
            self.fault_at(key, "the list is too long", &format!("write at most {most} items"));
        }
        &items[..items.len().min(most)]
    }

    /// The maps of a list, as far as they are right.
    pub fn list<T>(&self, key: &'static str, most: usize, read: impl Fn(&Fields<'y>) -> Option<T>) -> Vec<T> {
        let maps = self.items(key, most).iter().filter_map(|item| Fields::of(item, "a map", self.faults));
        maps.filter_map(|map| read(&map)).collect()
    }

    /// Reports an error of the whole map.
    pub fn fault(&self, message: &str, remedy: &str) {
        self.faults.push(self.line, TextFault::new(message, remedy));
    }

    /// Reports an error in the line of a key, or of the whole map without it.
    pub fn fault_at(&self, key: &'static str, message: &str, remedy: &str) {
        let line = self.entry(key).map_or(self.line, |entry| entry.line);
        self.faults.push(line, TextFault::new(message, remedy));
    }

    /// Reports that a key is missing, unless it is there and wrong.
    pub fn require(&self, key: &'static str, remedy: &str) {
        if self.entry(key).is_none() {
            self.fault(&format!("`{key}` is missing"), remedy);
        }
    }

    /// Reports keys that have no meaning: those that nobody read.
    pub fn finish(&self) {
        let known = self.known.borrow();
        for entry in self.entries.iter().filter(|entry| !known.contains(&entry.key.text.as_str())) {
            let message = format!("{} has no meaning here", quoted(&entry.key.text));
            let remedy = choose(&entry.key.text, known.iter().copied());
            self.faults.push(entry.line, TextFault::new(message, remedy));
        }
    }
}

// === values ===

/// A single value.
pub fn text(value: &Yaml) -> Result<&str, TextFault> {
    match &value.kind {
        YamlKind::Scalar(scalar) if !scalar.is_null() => Ok(&scalar.text),
        _ => {
            Err(TextFault::new(format!("{} stands where a single value belongs", value.described()), "write one value"))
        }
    }
}

/// `on` or `off`.
pub fn switch(value: &Yaml) -> Result<bool, TextFault> {
    match text(value)?.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" => Ok(true),
        "off" | "false" | "no" => Ok(false),
        other => Err(TextFault::new(format!("{} is neither on nor off", quoted(other)), "write on or off")),
    }
}
