//! Which patterns a value matches, by lookup: the cost grows with the value, not with the number of patterns.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::pattern::{Glob, Pattern};

/// A map by text. The keys come from rule files, so the hash needs no secret; only its speed matters.
pub(crate) type ByText<T> = HashMap<Box<str>, T, foldhash::fast::FixedState>;

/// What a pattern stands for, by its place in some list.
pub(crate) type Id = u32;

/// Patterns, each with the ids that stand behind it.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    exact: ByText<SmallVec<[Id; 2]>>,
    prefixes: Prefixes,
    /// Looked at one by one; the loader bounds how many there are.
    globs: Vec<(Glob, Id)>,
}

/// Prefixes in the order of their texts. All prefixes of a value are prefixes of the last text that is not after it, so they
/// hang on one chain.
#[derive(Debug, Default)]
struct Prefixes {
    entries: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<str>,
    /// The longest other text that this one begins with.
    parent: Option<usize>,
    ids: SmallVec<[Id; 2]>,
}

impl Patterns {
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = (&'a Pattern, Id)>) -> Patterns {
        let mut index = Patterns::default();
        let mut prefixes: Vec<(&str, Id)> = Vec::new();
        for (pattern, id) in patterns {
            match pattern {
                Pattern::Exact(text) => index.exact.entry(text.as_str().into()).or_default().push(id),
                Pattern::Prefix(prefix) => prefixes.push((prefix, id)),
                Pattern::Glob(glob) => index.globs.push((glob.clone(), id)),
            }
        }
        index.prefixes = Prefixes::new(prefixes);
        index
    }

    /// The ids of the pattern that is exactly this value.
    pub(crate) fn exact(&self, value: &str) -> &[Id] {
        if self.exact.is_empty() {
            return &[];
        }
        self.exact.get(value).map_or(&[], |ids| ids.as_slice())
    }

    /// Calls `found` for each id behind a wildcard that matches.
    pub(crate) fn wild(&self, value: &str, mut found: impl FnMut(Id)) {
        if !self.prefixes.entries.is_empty() {
            self.prefixes.each(value, &mut found);
        }
        for (glob, id) in &self.globs {
            if glob.matches(value) {
                found(*id);
            }
        }
    }
}

impl Prefixes {
    fn new(mut prefixes: Vec<(&str, Id)>) -> Prefixes {
        prefixes.sort_unstable();
        let mut entries: Vec<Prefix> = Vec::new();
        for (text, id) in prefixes {
            if let Some(last) = entries.last_mut()
                && *last.text == *text
            {
                last.ids.push(id);
                continue;
            }
            let mut parent = entries.len().checked_sub(1);
            while let Some(at) = parent
                && !text.starts_with(&*entries[at].text)
            {
                parent = entries[at].parent;
            }
            entries.push(Prefix { text: text.into(), parent, ids: SmallVec::from_slice(&[id]) });
        }
        Prefixes { entries }
    }

    fn each(&self, value: &str, found: &mut impl FnMut(Id)) {
        let after = self.entries.partition_point(|entry| *entry.text <= *value);
        let mut next = after.checked_sub(1);
        while let Some(at) = next {
            let entry = &self.entries[at];
            if value.starts_with(&*entry.text) {
                entry.ids.iter().for_each(|id| found(*id));
            }
            next = entry.parent;
        }
    }
}
