//! Problems of rule files: where, what, and what to write instead.

use std::fmt;
use std::sync::Arc;

use crate::model::{RuleOrigin, SourceLocation};

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// Whether the file can take effect in spite of it.
    pub severity: Severity,
    /// The file, or what was set by API.
    pub file: Arc<RuleOrigin>,
    /// The line, from 1. A problem of the whole file is reported at its first line.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// Whether rules can take effect in spite of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// They cannot.
    Error,
    /// They can, but possibly not as intended.
    Warning,
}

/// An error in a text. The location is added by the owner of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFault {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// The problems of a load. Their number is bounded, so that a file full of errors does not fill the memory.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    errors: ProblemList,
    warnings: ProblemList,
}

#[derive(Debug, Default)]
struct ProblemList {
    retained: Vec<RuleProblem>,
    /// The location of the first problem that was dropped.
    dropped_at: Option<(Arc<RuleOrigin>, usize)>,
}

/// The maximum number of reported errors, and of warnings.
pub const MAX_PROBLEMS: usize = 1_000;

/// The maximum length of a quotation from a file in a message, in characters.
const MAX_QUOTE_CHARS: usize = 60;

/// The maximum length of a word for which a similar one is searched.
const MAX_GUESS_CHARS: usize = 40;

/// The maximum number of words in a remedy.
const MAX_CHOICES: usize = 20;

/// What follows the name of an origin that is not a file.
const BY_API: &str = " (by API)";

// === impl Problem ===

impl RuleProblem {
    /// An error at a location.
    pub fn error(place: &SourceLocation, message: String, remedy: String) -> RuleProblem {
        RuleProblem { severity: Severity::Error, file: place.file.clone(), line: place.line, message, remedy }
    }

    /// Whether it is in the layer.
    pub fn is_by_api(&self) -> bool {
        self.file.is_by_api()
    }

    /// The location in short: `rules.yaml:7`, or `rule per-key:2` for a rule of the layer.
    pub fn at(&self) -> String {
        let name = self.file.to_string();
        let short = if self.is_by_api() { name.strip_suffix(BY_API) } else { None };
        format!("{}:{}", short.unwrap_or(&name), self.line)
    }
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}; {}", self.file, self.line, self.severity, self.message, self.remedy)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

// === impl RuleOrigin ===

impl RuleOrigin {
    /// Whether it is a part of the layer.
    pub fn is_by_api(&self) -> bool {
        !matches!(self, RuleOrigin::File(_))
    }
}

/// The name in problems.
impl fmt::Display for RuleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleOrigin::File(name) => f.write_str(name),
            RuleOrigin::Rule { name, .. } => write!(f, "rule {}{BY_API}", shown(name)),
            RuleOrigin::Switch { rule: Some(rule), .. } => write!(f, "switch of rule {}{BY_API}", shown(rule)),
            RuleOrigin::Switch { domain: Some(domain), .. } => write!(f, "switch of domain {}{BY_API}", shown(domain)),
            RuleOrigin::Switch { .. } => write!(f, "switch of everything{BY_API}"),
        }
    }
}

impl SourceLocation {
    /// Whether it is in the layer.
    pub fn is_by_api(&self) -> bool {
        self.file.is_by_api()
    }
}

/// A name, which may be any text, in one line.
fn shown(name: &str) -> String {
    let shown = quoted(name);
    // Unquoted, if it is an ordinary name.
    if shown.strip_prefix('`').and_then(|shown| shown.strip_suffix('`')) == Some(name) {
        name.to_owned()
    } else {
        shown
    }
}

// === impl Fault ===

impl TextFault {
    /// An error with its remedy.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> TextFault {
        TextFault { message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for TextFault {}

// === impl Problems ===

impl Problems {
    pub(crate) fn error(&mut self, file: &Arc<RuleOrigin>, line: usize, fault: TextFault) {
        self.errors.push(Severity::Error, file, line, fault);
    }

    pub(crate) fn warning(&mut self, file: &Arc<RuleOrigin>, line: usize, fault: TextFault) {
        self.warnings.push(Severity::Warning, file, line, fault);
    }

    /// Collects problems of something that is not in force: all of them become warnings.
    pub(crate) fn as_warnings<T>(&mut self, look: impl FnOnce(&mut Problems) -> T) -> T {
        let mut own = Problems::default();
        let seen = look(&mut own);
        for RuleProblem { file, line, message, remedy, .. } in
            own.errors.retained.into_iter().chain(own.warnings.retained)
        {
            self.warning(&file, line, TextFault { message, remedy });
        }
        seen
    }

    /// Whether one of them is an error.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.retained.is_empty()
    }

    /// The number of problems.
    pub(crate) fn len(&self) -> usize {
        self.errors.retained.len() + self.warnings.retained.len()
    }

    /// Whether another error would only be counted: then its text is not needed.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.dropped_at.is_some()
    }

    /// The warnings or, if there is an error, all problems: errors first, each severity by the rank of the file and
    /// by line.
    pub(crate) fn into_result(self, rank: impl Fn(&RuleOrigin) -> usize) -> Result<Vec<RuleProblem>, Vec<RuleProblem>> {
        let sound = !self.has_errors();
        let mut problems = self.errors.into_sorted(Severity::Error, &rank);
        problems.extend(self.warnings.into_sorted(Severity::Warning, &rank));
        if sound { Ok(problems) } else { Err(problems) }
    }
}

impl ProblemList {
    fn push(&mut self, severity: Severity, file: &Arc<RuleOrigin>, line: usize, fault: TextFault) {
        if self.retained.len() < MAX_PROBLEMS {
            let TextFault { message, remedy } = fault;
            self.retained.push(RuleProblem { severity, file: file.clone(), line, message, remedy });
        } else if self.dropped_at.is_none() {
            self.dropped_at = Some((file.clone(), line));
        }
    }

    fn into_sorted(self, severity: Severity, rank: impl Fn(&RuleOrigin) -> usize) -> Vec<RuleProblem> {
        let mut problems = self.retained;
        problems.sort_by_key(|problem| (rank(&problem.file), problem.line));
        if let Some((file, line)) = self.dropped_at {
            let message = format!("and more: only the first {MAX_PROBLEMS} are reported");
            problems.push(RuleProblem { severity, file, line, message, remedy: "correct those first".to_owned() });
        }
        problems
    }
}

/// A quotation from a file: in backquotes, without control characters, and not too long.
pub fn quoted(text: &str) -> String {
    let mut quote = String::from("`");
    for c in text.chars().take(MAX_QUOTE_CHARS) {
        if c.is_control() { quote.extend(c.escape_default()) } else { quote.push(c) }
    }
    if text.chars().nth(MAX_QUOTE_CHARS).is_some() {
        quote.push('…');
    }
    quote.push('`');
    quote
}

/// The most similar word, if one is similar enough.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_GUESS_CHARS {
        return None;
    }
    let word = word.to_ascii_lowercase();
    words
        .into_iter()
        .filter(|near| near.len() <= MAX_GUESS_CHARS)
        .map(|near| (strsim::osa_distance(&word, &near.to_ascii_lowercase()), near))
        .filter(|(distance, _)| *distance <= length.div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// The remedy for a word that is not one of these.
pub fn choose<'a>(word: &str, words: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(word, words.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one of {}", words.into_iter().take(MAX_CHOICES).collect::<Vec<_>>().join(", ")),
    }
}
