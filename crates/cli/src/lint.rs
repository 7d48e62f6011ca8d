//! `tollgate lint`: checks rule files.

mod leases;
mod suggestions;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{RuleProblem, Ruleset, Severity};
use tollgate_rules::model::RuleMode;
use tollgate_rules::{Domain, LoadedRules, load_paths, quoted};

use super::rules_args::RulesArgs;
use super::style::{Palette, Tone};
use super::{EXIT_FAILURE, pluralize, write_output};

#[derive(Debug, Args)]
pub(super) struct Lint {
    /// Rule files, or directories of them, that are loaded together
    #[arg(required_unless_present = "rules", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
    /// Also list which limits servers may lease from Redis, and why not
    #[arg(long, conflicts_with = "json")]
    leases: bool,
    #[command(flatten)]
    rules: RulesArgs,
}

/// Domains with a warning about concurrency limits.
const MAX_WARNED: usize = 1_000;

/// The maximum number of suggestions.
const MAX_SUGGESTED: usize = 1_000;

/// The result of a check.
#[derive(Default)]
struct Findings {
    /// `None` for rules with errors.
    rules: Option<Ruleset>,
    /// Errors and warnings.
    problems: Vec<RuleProblem>,
    suggestions: Vec<RuleProblem>,
}

/// The JSON document.
#[derive(Serialize)]
struct LintReport<'p> {
    errors: usize,
    warnings: usize,
    suggestions: usize,
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
        let findings = self.check();
        let report = LintReport::new(&findings);
        let mut text = if self.json { report.to_json() } else { report.to_text(Palette::of_stdout()) };
        if let Some(rules) = findings.rules.as_ref().filter(|_| self.leases) {
            text += &leases::list(rules);
        }
        write_output(&text, if report.errors == 0 { 0 } else { EXIT_FAILURE })
    }

    fn check(&self) -> Findings {
        let paths = self.rules.paths(self.paths.iter().map(PathBuf::as_path));
        let LoadedRules { domains, warnings: mut problems } = match load_paths(&paths, &self.rules.options()) {
            Ok(loaded) => loaded,
            Err(problems) => return Findings { problems, ..Findings::default() },
        };
        // A warning that names the entity makes the suggestion superfluous.
        let names_entity = |at: &RuleProblem| at.remedy.contains("`entity: ");
        let mut suggestions: Vec<RuleProblem> =
            domains.iter().flat_map(suggestions::suggest).take(MAX_SUGGESTED).collect();
        suggestions.retain(|one| {
            !(names_entity(one) && problems.iter().any(|other| names_entity(other) && other.file == one.file))
        });
        match Ruleset::compile(domains, 1) {
            Ok(rules) => {
                problems.extend(rules.domains().iter().filter_map(concurrency_warning).take(MAX_WARNED));
                problems.extend(rules.domains().iter().filter_map(home_warning).take(MAX_WARNED));
                Findings { rules: Some(rules), problems, suggestions }
            }
            Err(errors) => Findings { problems: errors.into_iter().chain(problems).collect(), ..Findings::default() },
        }
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

/// Warns that gateways may not wait for another region. The loader does not warn, since a server does not know its callers'
/// timeouts.
fn home_warning(domain: &Domain) -> Option<RuleProblem> {
    let mut rules = domain.rules().iter().filter(|rule| rule.region().is_home() && rule.mode() != RuleMode::Off);
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
            "{} has limits with `region: home` ({}{others}): a check may wait for another region, and Envoy gives up after 20 ms by \
             default",
            quoted(domain.name()),
            quoted(first.name()),
        ),
        remedy:
            "let gateways wait for 100 ms (`timeout: 0.1s` of Envoy's rate limit filter), or write `region: split` \
                 (docs/regions.md)"
                .to_owned(),
    })
}

impl LintReport<'_> {
    fn new(findings: &Findings) -> LintReport<'_> {
        let Findings { rules, problems, suggestions } = findings;
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        let reports = problems.iter().map(|problem| ProblemReport::new(problem, word(problem.severity)));
        let suggested = suggestions.iter().map(|problem| ProblemReport::new(problem, SUGGESTION));
        LintReport {
            errors,
            warnings: problems.len() - errors,
            suggestions: suggestions.len(),
            domains: rules.as_ref().map(|rules| rules.domains().len()),
            rules: rules.as_ref().map(|rules| rules.domains().iter().map(|domain| domain.rules().len()).sum()),
            problems: reports.chain(suggested).collect(),
        }
    }

    fn to_json(&self) -> String {
        // Serialisation of texts and numbers can't fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn to_text(&self, palette: Palette) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        for ProblemReport { severity, file, line, message, remedy } in &self.problems {
            let place = palette.paint(Tone::Heading, &format!("{file}:{line}:"));
            let severity = palette.paint(tone(severity), &format!("{severity}:"));
            let _ = writeln!(text, "{place} {severity} {message}; {remedy}");
        }
        if let (Some(domains), Some(rules)) = (self.domains, self.rules) {
            let _ = write!(text, "{}, {}: ", pluralize(domains, "domain"), pluralize(rules, "rule"));
        }
        let count = |number: usize, noun: &str| {
            let count = pluralize(number, noun);
            if number == 0 { count } else { palette.paint(tone(noun), &count) }
        };
        let _ = write!(text, "{}, {}", count(self.errors, "error"), count(self.warnings, "warning"));
        if self.suggestions > 0 {
            let _ = write!(text, ", {}", count(self.suggestions, SUGGESTION));
        }
        text.push('\n');
        text
    }
}

impl ProblemReport<'_> {
    fn new<'p>(problem: &'p RuleProblem, severity: &'static str) -> ProblemReport<'p> {
        let RuleProblem { file, line, message, remedy, .. } = problem;
        ProblemReport { severity, file: file.to_string(), line: *line, message, remedy }
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// The severity of suggestions, which are neither errors nor warnings.
const SUGGESTION: &str = "suggestion";

fn tone(severity: &str) -> Tone {
    match severity {
        "error" => Tone::Bad,
        "warning" => Tone::Unusual,
        _ => Tone::Quiet,
    }
}
