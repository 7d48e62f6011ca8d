//! What was given, where it came from, and what is wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tollgate_rules::Severity;
use tollgate_rules::problem::Fault;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody said anything.
    Default,
    /// Variables of envoyproxy/ratelimit: `HOST and PORT`.
    Envoy(String),
    /// What envoyproxy/ratelimit does where nobody says anything.
    EnvoyDefault,
    /// A line of the file.
    File(Arc<str>, usize),
    /// A variable of Tollgate's own.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

/// A value as it was given. One that can't be had as a text counts all the same, and is told if nothing stronger hides it.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) text: Result<String, Fault>,
    pub(crate) origin: Origin,
}

/// What one source gave, by the names of settings.
pub(crate) type Layer = BTreeMap<&'static str, Given>;

/// Something that whoever starts the server should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Whether the server can start in spite of it.
    pub(crate) severity: Severity,
    /// `tollgate.yaml:3`, `TOLLGATE_GRPC`, `--grpc`
    pub(crate) place: String,
    /// What is wrong.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) remedy: String,
}

/// Problems so far. A file that is wrong throughout must not fill the screen many times over.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    left_out: usize,
}

/// The most errors that are told.
pub(super) const MOST_ERRORS: usize = 100;

impl Origin {
    /// The place as an error names it.
    pub(crate) fn place(&self) -> String {
        match self {
            Origin::Default => "default".to_owned(),
            Origin::Envoy(names) => names.clone(),
            Origin::EnvoyDefault => "envoyproxy/ratelimit's default".to_owned(),
            Origin::File(file, line) => format!("{file}:{line}"),
            Origin::Environment(name) | Origin::Flag(name) => name.clone(),
        }
    }
}

/// Without the text, which may be a password.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default | Origin::EnvoyDefault | Origin::File(..) => f.write_str(&self.place()),
            Origin::Envoy(names) => write!(f, "envoyproxy/ratelimit's {names}"),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; {}", self.place, self.severity, self.message, self.remedy)
    }
}

impl Problems {
    pub(crate) fn error(&mut self, place: impl Into<String>, fault: Fault) {
        if self.errors.len() < MOST_ERRORS {
            let Fault { message, remedy } = fault;
            self.errors.push(Problem { severity: Severity::Error, place: place.into(), message, remedy });
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn warning(&mut self, place: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) {
        let (place, message, remedy) = (place.into(), message.into(), remedy.into());
        self.warnings.push(Problem { severity: Severity::Warning, place, message, remedy });
    }

    /// The warnings, or, if there is an error, everything, errors first.
    pub(crate) fn into_result(mut self) -> Result<Vec<Problem>, Vec<Problem>> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        if self.left_out > 0 {
            let message = format!("and {} more: only the first {MOST_ERRORS} are told", self.left_out);
            let (place, remedy) = ("settings".to_owned(), "correct those first".to_owned());
            self.errors.push(Problem { severity: Severity::Error, place, message, remedy });
        }
        self.errors.append(&mut self.warnings);
        Err(self.errors)
    }
}
