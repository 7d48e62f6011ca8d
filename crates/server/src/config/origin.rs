//! Values of settings, their origins and their problems.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tollgate_rules::Severity;
use tollgate_rules::problem::TextFault;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The default of the table.
    Default,
    /// Variables of envoyproxy/ratelimit: `HOST and PORT`.
    Envoy(String),
    /// A default of envoyproxy/ratelimit.
    EnvoyDefault,
    /// A line of the file.
    File(Arc<str>, usize),
    /// A `TOLLGATE_` variable.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

/// A value with its origin. An invalid text takes part in precedence too, and is reported if nothing overrides it.
#[derive(Clone)]
pub(super) struct SettingValue {
    pub text: Result<String, TextFault>,
    pub origin: Origin,
}

/// The values of one source, by the names of settings.
pub(super) type SettingLayer = BTreeMap<&'static str, SettingValue>;

/// An error or a warning about settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Whether the server can start.
    pub severity: Severity,
    /// `tollgate.yaml:3`, `TOLLGATE_GRPC`, `--grpc`
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// The problems so far. Their number is bounded, so that an invalid file does not flood the terminal.
#[derive(Debug, Default)]
pub(super) struct ConfigProblems {
    pub(super) errors: Vec<ConfigProblem>,
    pub(super) warnings: Vec<ConfigProblem>,
    omitted: usize,
}

/// Errors that are reported.
pub(super) const MAX_ERRORS: usize = 100;

impl Origin {
    /// The origin as an error names it.
    pub(super) fn place(&self) -> String {
        match self {
            Origin::Default => "default".to_owned(),
            Origin::Envoy(names) => names.clone(),
            Origin::EnvoyDefault => "envoyproxy/ratelimit's default".to_owned(),
            Origin::File(file, line) => format!("{file}:{line}"),
            Origin::Environment(name) | Origin::Flag(name) => name.clone(),
        }
    }
}

/// Omits the text, which may be a password.
impl fmt::Debug for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingValue").field("origin", &self.origin).finish_non_exhaustive()
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

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; {}", self.place, self.severity, self.message, self.remedy)
    }
}

impl ConfigProblems {
    pub(super) fn error(&mut self, place: impl Into<String>, fault: TextFault) {
        if self.errors.len() < MAX_ERRORS {
            let TextFault { message, remedy } = fault;
            self.errors.push(ConfigProblem { severity: Severity::Error, place: place.into(), message, remedy });
        } else {
            self.omitted += 1;
        }
    }

    pub(super) fn warning(&mut self, place: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) {
        let (place, message, remedy) = (place.into(), message.into(), remedy.into());
        self.warnings.push(ConfigProblem { severity: Severity::Warning, place, message, remedy });
    }

    /// The warnings, or, if there is an error, everything, errors first.
    pub(super) fn into_result(mut self) -> Result<Vec<ConfigProblem>, Vec<ConfigProblem>> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        if self.omitted > 0 {
            let message = format!("and {} more: only the first {MAX_ERRORS} are reported", self.omitted);
            let (place, remedy) = ("settings".to_owned(), "correct those first".to_owned());
            self.errors.push(ConfigProblem { severity: Severity::Error, place, message, remedy });
        }
        self.errors.append(&mut self.warnings);
        Err(self.errors)
    }
}
