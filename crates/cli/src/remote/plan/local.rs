//! A plan without a server: two sets of rules, and requests from standard input.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tollgate::Tenants;
use tollgate_plan::{NameForm, RecordedCaller, TrafficDescriptor, TrafficRecord, World, compare, report_json};

use super::super::{CommandError, write_stdout};
use super::{PlanCommand, text};
use crate::replay::{Console, InputLine, InputLines, MAX_LINE_BYTES, Mapping, RecordedRequest};
use crate::spelling_args::normalized;
use crate::{EXIT_FAILURE, EXIT_USAGE, print_error};

/// The requests of a plan, which are in memory.
pub(crate) const MAX_REQUESTS: usize = 5_000_000;

pub(super) fn run(plan: &PlanCommand, paths: &[&Path]) -> ExitCode {
    let mapping = match Mapping::new(plan.format, &plan.map) {
        Ok(mapping) => mapping,
        Err(message) => {
            print_error(format_args!("error: {message}"));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let against: Vec<&Path> = plan.against.iter().map(PathBuf::as_path).collect();
    let (before, after) = match (plan.rules.load(&against), plan.rules.load(paths)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(code), _) | (_, Err(code)) => return code,
    };
    if io::stdin().is_terminal() {
        print_error("reading requests from standard input; Ctrl-D ends them, and `< FILE` reads a file");
    }
    let mut console = Console::new(plan.format);
    let records = match read(plan, &mapping, &mut console) {
        Ok(records) => records,
        Err(message) => {
            console.print(format_args!("error: {message}"));
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    let tenants = Tenants::default();
    let (first, second) = (World { rules: &before, tenants: &tenants }, World { rules: &after, tenants: &tenants });
    let is_terminal = io::stderr().is_terminal();
    let report = compare(&first, &second, &records, true, &mut |done| {
        if is_terminal {
            // Failures to show progress are ignored.
            let _ = write!(io::stderr().lock(), "\r\x1b[Kcomparing: {:.0} %", done * 100.0);
        }
    });
    if is_terminal {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
    let mut answer = report_json(&report, NameForm::Recorded);
    answer["complete"] = json!(true);
    let text = if plan.server.json { format!("{answer}\n") } else { text::report(&answer) };
    match write_stdout(text) {
        Ok(()) | Err(CommandError::OutputClosed) => {}
        Err(_) => return ExitCode::from(EXIT_FAILURE),
    }
    let is_read = console.bad() == 0 || (plan.format.tolerates_invalid_lines() && !records.is_empty());
    ExitCode::from(if is_read { 0 } else { EXIT_FAILURE })
}

/// The requests on standard input. Invalid lines are reported and skipped.
fn read(plan: &PlanCommand, mapping: &Mapping, console: &mut Console) -> Result<Vec<TrafficRecord>, String> {
    let normalization = plan.spelling.normalization();
    let mut lines = InputLines::new(io::stdin().lock());
    let mut records = Vec::new();
    loop {
        let number = lines.number() + 1;
        let line =
            lines.next().map_err(|error| format!("standard input can't be read after line {number}: {error}"))?;
        let request = match line {
            None => return Ok(records),
            Some(InputLine::TooLong) => Err(format!("it is longer than {MAX_LINE_BYTES} bytes")),
            Some(InputLine::Text(line)) => mapping.parse(line),
        };
        let request = request.map(|request| record(request, |name, value| normalized(normalization, name, value)));
        match request {
            Ok(request) => records.push(request),
            Err(error) => console.bad_line(lines.number(), &error),
        }
        if records.len() > MAX_REQUESTS {
            return Err(format!("there are more than {MAX_REQUESTS} requests; compare a part of them"));
        }
        console.progress(lines.number());
    }
}

fn record(request: RecordedRequest<'_>, normalized: impl Fn(&str, &str) -> Option<String>) -> TrafficRecord {
    let RecordedRequest { at, domain, descriptors, cost, is_of_http } = request;
    let descriptors = descriptors.into_iter().map(|descriptor| {
        let entries = descriptor.entries.into_iter().map(|(name, value)| {
            let normal = if is_of_http { normalized(&name, &value) } else { None };
            (name.as_ref().into(), normal.unwrap_or_else(|| value.into_owned()).into())
        });
        TrafficDescriptor { entries: entries.collect(), hits: descriptor.hits }
    });
    TrafficRecord {
        at,
        domain: domain.map(|domain| domain.as_ref().into()),
        descriptors: descriptors.collect(),
        cost,
        copies: 1,
        callers: 1,
        caller: RecordedCaller::default(),
        limits: Box::default(),
    }
}
