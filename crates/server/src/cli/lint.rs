//! `tollgate lint`: what is wrong with rule files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{Problem, Ruleset, Severity};

use super::{FAILURE, LoadingArgs, finish};
use crate::words::counted;

#[derive(Debug, Args)]
pub(super) struct Lint {
    /// Rule files, and directories of them, that are in force together
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: LoadingArgs,
}

/// What was found.
#[derive(Serialize)]
struct Report<'p> {
    errors: usize,
    warnings: usize,
    /// How much there is; not known of rules with errors.
    domains: Option<usize>,
    rules: Option<usize>,
    problems: Vec<Told<'p>>,
}

/// A problem as JSON has it.
#[derive(Serialize)]
struct Told<'p> {
    severity: &'static str,
    file: &'p str,
    line: usize,
    message: &'p str,
    remedy: &'p str,
}

impl Lint {
    pub(super) fn run(&self) -> ExitCode {
        let (ruleset, problems) = match Ruleset::load(&self.paths, &self.loading.options(), 1) {
            Ok((ruleset, warnings)) => (Some(ruleset), warnings),
            Err(problems) => (None, problems),
        };
        let report = Report::new(ruleset.as_ref(), &problems);
        let text = if self.json { report.to_json() } else { report.to_text(&problems) };
        finish(&text, if report.errors == 0 { 0 } else { FAILURE })
    }
}

impl Report<'_> {
    fn new<'p>(ruleset: Option<&Ruleset>, problems: &'p [Problem]) -> Report<'p> {
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        Report {
            errors,
            warnings: problems.len() - errors,
            domains: ruleset.map(|ruleset| ruleset.domains().len()),
            rules: ruleset.map(|ruleset| ruleset.domains().iter().map(|domain| domain.rules().len()).sum()),
            problems: problems.iter().map(Told::new).collect(),
        }
    }

    fn to_json(&self) -> String {
        // Texts and numbers always have a form in JSON.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn to_text(&self, problems: &[Problem]) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        for problem in problems {
            let _ = writeln!(text, "{problem}");
        }
        if let (Some(domains), Some(rules)) = (self.domains, self.rules) {
            let _ = write!(text, "{}, {}: ", counted(domains, "domain"), counted(rules, "rule"));
        }
        let _ = writeln!(text, "{}, {}", counted(self.errors, "error"), counted(self.warnings, "warning"));
        text
    }
}

impl Told<'_> {
    fn new(problem: &Problem) -> Told<'_> {
        let Problem { severity, file, line, message, remedy } = problem;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        Told { severity, file, line: *line, message, remedy }
    }
}
