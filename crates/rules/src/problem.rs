//! What is wrong with rule files: where, what, and what to write instead.

use std::fmt;
use std::sync::Arc;

use crate::model::Place;

/// Something in a file that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the file can take effect in spite of it.
    pub severity: Severity,
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1; what concerns the file as a whole is told of its first line.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// Whether rules can take effect in spite of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// They can't.
    Error,
    /// They can, but perhaps not as meant.
    Warning,
}

/// What is wrong with a text. Where it stands is known to whoever holds the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// The problems of a load so far. A file that is wrong throughout must not fill the memory with complaints.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    errors: Pile,
    warnings: Pile,
}

#[derive(Debug, Default)]
struct Pile {
    kept: Vec<Problem>,
    /// Where the first one stands that was not kept.
    more: Option<(Arc<str>, usize)>,
}

/// The most errors that are told, and the most warnings.
pub const MOST_PROBLEMS: usize = 1_000;

/// The longest piece of a file that is repeated in a message, in characters.
const LONGEST_QUOTE: usize = 60;

/// The longest word that a near one is looked for.
const LONGEST_GUESS: usize = 40;

/// The most words that are offered.
const MOST_CHOICES: usize = 20;

// === impl Problem ===

impl Problem {
    /// An error at a place.
    pub fn error(place: &Place, message: String, remedy: String) -> Problem {
        Problem { severity: Severity::Error, file: place.file.clone(), line: place.line, message, remedy }
    }
}

impl fmt::Display for Problem {
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

// === impl Fault ===

impl Fault {
    /// A fault with its remedy.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for Fault {}

// === impl Problems ===

impl Problems {
    pub(crate) fn error(&mut self, file: &Arc<str>, line: usize, fault: Fault) {
        self.errors.push(Severity::Error, file, line, fault);
    }

    pub(crate) fn warning(&mut self, file: &Arc<str>, line: usize, fault: Fault) {
        self.warnings.push(Severity::Warning, file, line, fault);
    }

    /// What is wrong with something that is not in force: told, but none of it is an error.
    pub(crate) fn lowered<T>(&mut self, look: impl FnOnce(&mut Problems) -> T) -> T {
        let mut own = Problems::default();
        let seen = look(&mut own);
        for Problem { file, line, message, remedy, .. } in own.errors.kept.into_iter().chain(own.warnings.kept) {
            self.warning(&file, line, Fault { message, remedy });
        }
        seen
    }

    /// Whether one of them is an error.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.kept.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.errors.kept.len() + self.warnings.kept.len()
    }

    /// Whether another error would only be counted: then it need not be worded.
    pub(crate) fn are_enough(&self) -> bool {
        self.errors.more.is_some()
    }

    /// The warnings, or, if there is an error, everything: errors first, each kind by the rank of the file and by line.
    pub(crate) fn into_result(self, rank: impl Fn(&str) -> usize) -> Result<Vec<Problem>, Vec<Problem>> {
        let sound = !self.has_errors();
        let mut told = self.errors.told(Severity::Error, &rank);
        told.extend(self.warnings.told(Severity::Warning, &rank));
        if sound { Ok(told) } else { Err(told) }
    }
}

impl Pile {
    fn push(&mut self, severity: Severity, file: &Arc<str>, line: usize, fault: Fault) {
        if self.kept.len() < MOST_PROBLEMS {
            let Fault { message, remedy } = fault;
            self.kept.push(Problem { severity, file: file.clone(), line, message, remedy });
        } else if self.more.is_none() {
            self.more = Some((file.clone(), line));
        }
    }

    fn told(self, severity: Severity, rank: impl Fn(&str) -> usize) -> Vec<Problem> {
        let mut told = self.kept;
        told.sort_by_key(|problem| (rank(&problem.file), problem.line));
        if let Some((file, line)) = self.more {
            let message = format!("and more: only the first {MOST_PROBLEMS} are told");
            told.push(Problem { severity, file, line, message, remedy: "correct those first".to_owned() });
        }
        told
    }
}

/// A piece of a file as a message repeats it: in backquotes, without control characters, and not too long.
pub fn quoted(text: &str) -> String {
    let mut quote = String::from("`");
    for c in text.chars().take(LONGEST_QUOTE) {
        if c.is_control() { quote.extend(c.escape_default()) } else { quote.push(c) }
    }
    if text.chars().nth(LONGEST_QUOTE).is_some() {
        quote.push('…');
    }
    quote.push('`');
    quote
}

/// The word that was probably meant, if one is near enough.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > LONGEST_GUESS {
        return None;
    }
    let word = word.to_ascii_lowercase();
    words
        .into_iter()
        .filter(|near| near.len() <= LONGEST_GUESS)
        .map(|near| (strsim::osa_distance(&word, &near.to_ascii_lowercase()), near))
        .filter(|(distance, _)| *distance <= length.div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// What to say of a word that is not one of these.
pub fn choose<'a>(word: &str, words: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(word, words.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one of {}", words.into_iter().take(MOST_CHOICES).collect::<Vec<_>>().join(", ")),
    }
}
