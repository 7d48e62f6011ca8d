//! Patterns over attribute values: exact texts, prefixes and globs.

/// A pattern. `*` matches zero or more characters; everything else matches itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// No `*`.
    Exact(String),
    /// One `*`, at the end.
    Prefix(String),
    /// `*` elsewhere.
    Glob(Glob),
}

/// A pattern with `*` anywhere: a prefix, parts in order without overlap, and a suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    prefix: String,
    middle: Vec<String>,
    suffix: String,
}

impl Pattern {
    /// Parses a pattern. Every text is valid.
    pub fn new(text: &str) -> Pattern {
        let Some((prefix, rest)) = text.split_once('*') else {
            return Pattern::Exact(text.to_owned());
        };
        if rest.is_empty() {
            return Pattern::Prefix(prefix.to_owned());
        }
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        Pattern::Glob(Glob {
            prefix: prefix.to_owned(),
            middle: middle.split('*').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            suffix: suffix.to_owned(),
        })
    }

    /// Whether it has a wildcard.
    pub fn is_wild(&self) -> bool {
        !matches!(self, Pattern::Exact(_))
    }

    /// Whether a value matches.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Pattern::Exact(text) => text == value,
            Pattern::Prefix(prefix) => value.starts_with(prefix.as_str()),
            Pattern::Glob(glob) => glob.matches(value),
        }
    }
}

impl Glob {
    /// Whether a value matches. Taking each middle part at its first occurrence leaves the most for the later ones,
    /// so there is no backtracking.
    pub fn matches(&self, value: &str) -> bool {
        let Some(rest) = value.strip_prefix(self.prefix.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(self.suffix.as_str()) else { return false };
        for part in &self.middle {
            match rest.find(part.as_str()) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pattern::Exact(text) => f.write_str(text),
            Pattern::Prefix(prefix) => write!(f, "{prefix}*"),
            Pattern::Glob(glob) => {
                f.write_str(&glob.prefix)?;
                for part in &glob.middle {
                    write!(f, "*{part}")?;
                }
                write!(f, "*{}", glob.suffix)
            }
        }
    }
}
