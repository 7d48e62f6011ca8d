//! Finds the patterns that match a value, by lookup: the cost depends on the value's length, not on the number of
//! patterns.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use crate::pattern::{Glob, Pattern};

/// A map by text. The keys come from rule files, so the hash needs no secret, only speed.
pub(crate) type ByText<T> = HashMap<Box<str>, T, foldhash::fast::FixedState>;

/// The index of a pattern's target in some list.
pub(crate) type Id = u32;

/// Patterns, each with the ids of its targets.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    exact: ByText<SmallVec<[Id; 2]>>,
    prefixes: Prefixes,
    /// Tried one by one; the loader bounds their number.
    globs: Vec<(Glob, Id)>,
}

/// Prefixes by hash, looked up for each length that some prefix has. The hash of a longer prefix continues that of a
/// shorter one, so a value is hashed once.
#[derive(Debug, Default)]
struct Prefixes {
    /// The existing lengths, shortest first.
    lengths: Vec<usize>,
    by_hash: HashMap<u64, SmallVec<[Prefix; 1]>, foldhash::fast::FixedState>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<str>,
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

    /// Whether there are no patterns.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.lengths.is_empty() && self.globs.is_empty()
    }

    /// The ids of the pattern that equals this value.
    pub(crate) fn exact(&self, value: &str) -> &[Id] {
        if self.exact.is_empty() {
            return &[];
        }
        self.exact.get(value).map_or(&[], |ids| ids.as_slice())
    }

    /// Calls `found` for each id of a wildcard that matches.
    pub(crate) fn wild(&self, value: &str, mut found: impl FnMut(Id)) {
        self.prefixes.each(value, &mut found);
        for (glob, id) in &self.globs {
            if glob.matches(value) {
                found(*id);
            }
        }
    }
}

impl Prefixes {
    fn new(prefixes: Vec<(&str, Id)>) -> Prefixes {
        let mut lengths: Vec<usize> = prefixes.iter().map(|(text, _)| text.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut index = Prefixes { lengths, by_hash: HashMap::default() };
        for (text, id) in prefixes {
            let mut hash = 0;
            index.hashes(text, |_, longest| hash = longest);
            let same = index.by_hash.entry(hash).or_default();
            match same.iter_mut().find(|prefix| *prefix.text == *text) {
                Some(prefix) => prefix.ids.push(id),
                None => same.push(Prefix { text: text.into(), ids: SmallVec::from_slice(&[id]) }),
            }
        }
        index
    }

    fn each(&self, value: &str, found: &mut impl FnMut(Id)) {
        self.hashes(value, |length, hash| {
            for prefix in self.by_hash.get(&hash).into_iter().flatten() {
                if prefix.text.len() == length && value.starts_with(&*prefix.text) {
                    prefix.ids.iter().for_each(|id| found(*id));
                }
            }
        });
    }

    /// Calls `look` with each length of a prefix that the value reaches, and the hash of that part of the value.
    fn hashes(&self, value: &str, mut look: impl FnMut(usize, u64)) {
        let (mut hash, mut from) = (0, 0);
        for &length in &self.lengths {
            let Some(part) = value.as_bytes().get(from..length) else { return };
            let mut hasher = foldhash::fast::FixedState::with_seed(hash).build_hasher();
            hasher.write(part);
            hash = hasher.finish();
            look(length, hash);
            from = length;
        }
    }
}
