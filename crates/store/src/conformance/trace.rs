//! Traces: the expected answers of a store as rows of text. `tests/traces/README.md` describes the notation.

mod notation;
mod parse;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use tollgate_core::{Ask, Claim, ClaimId, Mode, Once, Reading, Replay, Settlement, Span, Timestamp, Wait};

use super::Subject;
use super::world::{TestCounter, settle};

pub use parse::parse;

/// A sequence of claims on one fresh store.
#[derive(Debug)]
pub struct Case {
    /// What the case shows.
    pub name: String,
    rows: Vec<TraceRow>,
}

/// A claim and the expected answer.
#[derive(Debug)]
struct TraceRow {
    line: usize,
    at: Timestamp,
    id: ClaimId,
    once: Option<OnceRow>,
    charges: Vec<ChargeRow>,
    again: bool,
    expected: Vec<ExpectedReading>,
}

#[derive(Debug)]
struct OnceRow {
    name: String,
    body: u64,
    keep: Span,
}

#[derive(Debug)]
struct ChargeRow {
    counter: Arc<TestCounter>,
    value: String,
    ask: Ask,
    units: u64,
    mode: Mode,
}

/// A reading as a row states it. If it does not state the reset, any reset is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExpectedReading {
    admits: bool,
    took: u64,
    left: u64,
    wait: Wait,
    reset: Option<Span>,
    delay: Span,
}

/// Runs all traces of the workspace.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces"));
    let mut failures = String::new();
    let mut rows = 0;
    for (file, text) in read(directory) {
        match parse(&text) {
            Ok(cases) => {
                for case in &cases {
                    rows += case.rows.len();
                    if let Err(problem) = check(case, &make()) {
                        let _ = writeln!(failures, "tests/traces/{file}:{problem}");
                    }
                }
            }
            Err(problem) => {
                let _ = writeln!(failures, "tests/traces/{file}:{problem}");
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(rows > 0, "no traces in {}", directory.display());
}

/// Runs a case on a fresh store. The error begins with the line of the first difference.
pub fn check<S: Subject>(case: &Case, subject: &S) -> Result<(), String> {
    case.rows.iter().try_for_each(|row| {
        subject.set_now(row.at);
        let settlement = row.settle(subject);
        row.compare(&settlement).map_err(|problem| format!("{}: in \"{}\": {problem}", row.line, case.name))
    })
}

fn read(directory: &Path) -> Vec<(String, String)> {
    let files = match std::fs::read_dir(directory) {
        Ok(files) => files,
        Err(error) => panic!("{}: {error}", directory.display()),
    };
    let mut traces: Vec<(String, String)> = files
        .filter_map(Result::ok)
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "trace"))
        .map(|path| match std::fs::read_to_string(&path) {
            Ok(text) => (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text),
            Err(error) => panic!("{}: {error}", path.display()),
        })
        .collect();
    traces.sort();
    traces
}

impl TraceRow {
    fn settle<S: Subject>(&self, subject: &S) -> Settlement {
        let charges =
            self.charges.iter().map(|row| row.counter.charge(&row.value, row.ask, row.units, row.mode)).collect();
        let names = self.charges.first().map(|row| row.counter.as_ref());
        let once = self.once.as_ref().zip(names).map(|(once, names)| Once {
            key: names.key(&once.name),
            body: once.body,
            terms: once.body,
            keep: once.keep,
        });
        settle(subject, &Claim { id: self.id, charges, once, timeout: None })
    }

    fn compare(&self, settlement: &Settlement) -> Result<(), String> {
        let is_again = matches!(settlement.replay, Replay::Again { .. });
        if settlement.replay == Replay::Conflict || is_again != self.again {
            let expected = if self.again { "again" } else { "the first time" };
            return Err(format!("expected {expected}, got {:?}", settlement.replay));
        }
        if settlement.readings.len() != self.expected.len() {
            return Err(format!("{} charges got {} readings", self.expected.len(), settlement.readings.len()));
        }
        for (index, (expected, reading)) in self.expected.iter().zip(&settlement.readings).enumerate() {
            let actual = ExpectedReading::from_reading(reading, expected.reset.is_some());
            if actual != *expected {
                return Err(format!("charge {}: expected\n    {expected}\n  got\n    {actual}", index + 1));
            }
        }
        Ok(())
    }
}

impl ExpectedReading {
    fn from_reading(reading: &Reading, with_reset: bool) -> ExpectedReading {
        ExpectedReading {
            admits: reading.admits,
            took: reading.taken,
            left: reading.remaining,
            wait: reading.wait,
            reset: with_reset.then_some(reading.reset_after),
            delay: reading.delay,
        }
    }
}
