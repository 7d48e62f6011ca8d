//! `tollgate lint`: checks rule files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{RuleProblem, Ruleset, Severity};
use tollgate_rules::model::RuleMode;
use tollgate_rules::{Domain, quoted};

use super::{EXIT_FAILURE, LoadingArgs, pluralize, write_output};

#[derive(Debug, Args)]
pub(super) struct Lint {
    /// Rule files, or directories of them, that are loaded together
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: LoadingArgs,
}

/// Domains with a warning about concurrency limits.
const MAX_WARNED: usize = 1_000;

/// The JSON document.
#[derive(Serialize)]
struct LintReport<'p> {
    errors: usize,
    warnings: usize,
    /// Unknown for rules with errors.
    domains: Option<usize>,
    rules: Option<usize>,
    problems: Vec<ProblemReport<'p>>,
}

/// A problem in the JSON document.
#[derive(Serialize)]
struct ProblemReport<'p> {
    severity: &'static str,
    file: String,
    line: usize,
    message: &'p str,
    remedy: &'p str,
}

impl Lint {
    pub(super) fn run(&self) -> ExitCode {
        let (ruleset, problems) = match Ruleset::load(&self.paths, &self.loading.options(), 1) {
            Ok((ruleset, mut warnings)) => {
                warnings.extend(ruleset.domains().iter().filter_map(concurrency_warning).take(MAX_WARNED));
                (Some(ruleset), warnings)
            }
            Err(problems) => (None, problems),
        };
        let report = LintReport::new(ruleset.as_ref(), &problems);
        let text = if self.json { report.to_json() } else { report.to_text(&problems) };
        write_output(&text, if report.errors == 0 { 0 } else { EXIT_FAILURE })
    }
}

/// Warns that some callers can't release slots: Envoy and proxies make one request and get no receipt. The loader does not warn,
/// since it does not concern servers without such callers.
fn concurrency_warning(domain: &Domain) -> Option<RuleProblem> {
    let mut rules = domain.rules().iter().filter(|rule| rule.is_concurrency() && rule.mode() != RuleMode::Off);
    let first = rules.next()?;
    let others = match rules.count() {
        0 => String::new(),
        others => format!(" and {}", pluralize(others, "other rule")),
    };
    let place = first.location();
    Some(RuleProblem {
        severity: Severity::Warning,
        file: place.file.clone(),
        line: place.line,
        message: format!(
            "{} has concurrency limits ({}{others}); over Envoy's protocol and /v1/ratelimit/authorize they apply only to calls with an \
             entry `tollgate.claim`",
            quoted(domain.name()),
            quoted(first.name()),
        ),
        remedy: "send `tollgate.claim` with the id of the request, and once more with `tollgate.ask: return` when the request has ended \
                 (docs/envoy.md)"
            .to_owned(),
    })
}

impl LintReport<'_> {
    fn new<'p>(ruleset: Option<&Ruleset>, problems: &'p [RuleProblem]) -> LintReport<'p> {
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        LintReport {
            errors,
            warnings: problems.len() - errors,
            domains: ruleset.map(|ruleset| ruleset.domains().len()),
            rules: ruleset.map(|ruleset| ruleset.domains().iter().map(|domain| domain.rules().len()).sum()),
            problems: problems.iter().map(ProblemReport::new).collect(),
        }
    }

    fn to_json(&self) -> String {
        // Serialisation of texts and numbers can't fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn to_text(&self, problems: &[RuleProblem]) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        for problem in problems {
            let _ = writeln!(text, "{problem}");
        }
        if let (Some(domains), Some(rules)) = (self.domains, self.rules) {
            let _ = write!(text, "{}, {}: ", pluralize(domains, "domain"), pluralize(rules, "rule"));
        }
        let _ = writeln!(text, "{}, {}", pluralize(self.errors, "error"), pluralize(self.warnings, "warning"));
        text
    }
}

impl ProblemReport<'_> {
    fn new(problem: &RuleProblem) -> ProblemReport<'_> {
        let RuleProblem { severity, file, line, message, remedy } = problem;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        ProblemReport { severity, file: file.to_string(), line: *line, message, remedy }
    }
}
