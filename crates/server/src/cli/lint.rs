//! `tollgate lint`: what is wrong with rule files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{Problem, Ruleset, Severity};
use tollgate_rules::model::RuleMode;
use tollgate_rules::{Domain, quoted};

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

/// The most domains that are warned of.
const MOST_WARNED: usize = 1_000;

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
            Ok((ruleset, mut warnings)) => {
                warnings.extend(ruleset.domains().iter().filter_map(held_by_name_alone).take(MOST_WARNED));
                (Some(ruleset), warnings)
            }
            Err(problems) => (None, problems),
        };
        let report = Report::new(ruleset.as_ref(), &problems);
        let text = if self.json { report.to_json() } else { report.to_text(&problems) };
        finish(&text, if report.errors == 0 { 0 } else { FAILURE })
    }
}

/// That some callers can't release what they would hold: Envoy and proxies ask once and hear nothing of receipts. Told here and not by
/// the loader, since a server that is never asked by those has no use for it in its log.
fn held_by_name_alone(domain: &Domain) -> Option<Problem> {
    let mut rules = domain.rules().iter().filter(|rule| rule.is_concurrency() && rule.mode() != RuleMode::Off);
    let first = rules.next()?;
    let others = match rules.count() {
        0 => String::new(),
        others => format!(" and {}", counted(others, "other rule")),
    };
    let place = first.place();
    Some(Problem {
        severity: Severity::Warning,
        file: place.file.clone(),
        line: place.line,
        message: format!(
            "requests in flight are limited in {} by {}{others}; over Envoy's protocol and /v1/ratelimit/authorize that holds only for \
             calls with an entry `tollgate.claim`",
            quoted(domain.name()),
            quoted(first.name()),
        ),
        remedy: "let those callers send `tollgate.claim` with the request's id, and with it `tollgate.ask: return` when the request has \
                 ended (docs/envoy.md)"
            .to_owned(),
    })
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
