//! `tollgate gateway check`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::Severity;
use tollgate_gateway::check::{CheckedFile, check_file};
use tollgate_gateway::config::GatewayProblem;

use crate::rules_args::RulesArgs;
use crate::style::{Palette, Tone};
use crate::{EXIT_FAILURE, pluralize, write_output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate gateway check gateway.yaml\n  \
    tollgate gateway check gateway.yaml --rules rules.yaml\n  \
    tollgate gateway check gateway.yaml --json")]
pub(super) struct Check {
    /// The file of a gateway
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    rules: RulesArgs,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct CheckReport {
    errors: usize,
    warnings: usize,
    /// Unknown for a file with errors.
    routes: Option<usize>,
    upstreams: Option<usize>,
    listeners: Option<usize>,
    problems: Vec<ReportedProblem>,
}

#[derive(Serialize)]
struct ReportedProblem {
    severity: &'static str,
    file: String,
    line: usize,
    message: String,
    remedy: String,
}

impl Check {
    pub(super) fn run(&self) -> ExitCode {
        let rules = match self.rules.rules.is_empty() {
            true => None,
            false => match self.rules.load(&self.rules.paths([])) {
                Ok(rules) => Some(rules),
                Err(code) => return code,
            },
        };
        let report = CheckReport::new(check_file(&self.file, rules.as_ref()));
        let text = match self.json {
            // Serialisation of texts and numbers can't fail.
            true => serde_json::to_string_pretty(&report).unwrap_or_default() + "\n",
            false => report.to_text(Palette::of_stdout()),
        };
        write_output(&text, if report.errors == 0 { 0 } else { EXIT_FAILURE })
    }
}

impl CheckReport {
    fn new(checked: CheckedFile) -> CheckReport {
        let CheckedFile { config, problems } = checked;
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        CheckReport {
            errors,
            warnings: problems.len() - errors,
            routes: config.as_ref().map(|config| config.routes.len()),
            upstreams: config.as_ref().map(|config| config.upstreams.len()),
            listeners: config.as_ref().map(|config| config.listeners.len()),
            problems: problems.into_iter().map(ReportedProblem::new).collect(),
        }
    }

    fn to_text(&self, palette: Palette) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        for ReportedProblem { severity, file, line, message, remedy } in &self.problems {
            let place = palette.paint(Tone::Heading, &format!("{file}:{line}:"));
            let severity = palette.paint(tone(severity), &format!("{severity}:"));
            let _ = writeln!(text, "{place} {severity} {message}; {remedy}");
        }
        if let (Some(routes), Some(upstreams), Some(listeners)) = (self.routes, self.upstreams, self.listeners) {
            let (routes, upstreams) = (pluralize(routes, "route"), pluralize(upstreams, "upstream"));
            let _ = write!(text, "{routes}, {upstreams}, {}: ", pluralize(listeners, "listener"));
        }
        let count = |number: usize, noun: &str| {
            let count = pluralize(number, noun);
            if number == 0 { count } else { palette.paint(tone(noun), &count) }
        };
        let _ = writeln!(text, "{}, {}", count(self.errors, "error"), count(self.warnings, "warning"));
        text
    }
}

impl ReportedProblem {
    fn new(problem: GatewayProblem) -> ReportedProblem {
        let GatewayProblem { severity, file, line, message, remedy } = problem;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        ReportedProblem { severity, file: file.to_string(), line, message, remedy }
    }
}

fn tone(severity: &str) -> Tone {
    if severity == "error" { Tone::Bad } else { Tone::Unusual }
}
