//! Import and export of quotas.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write as _, stderr};
use std::path::Path as FilePath;

use serde_json::Value;

use super::client::{AdminClient, ApiRequest, input};
use super::path::ApiPath;
use super::{CommandError, CommandResult, ErrorResponse, write_stdout};
use crate::pluralize;

/// Sends the lines of a file and shows the progress.
pub(super) fn import(client: &AdminClient, file: &FilePath, domain: Option<&str>, dry_run: bool) -> CommandResult {
    let path =
        ApiPath::new(&["admin", "v1", "import"]).with("domain", domain).with("dry_run", dry_run.then_some("true"));
    let request = ApiRequest::post(path).lines(input(file)?);
    let shows_progress = stderr().is_terminal();
    let mut last = Value::Null;
    client.each_line(request, |line| {
        if client.json {
            write_stdout([line, b"\n"].concat())?;
        }
        last = serde_json::from_slice(line).unwrap_or_default();
        if shows_progress {
            let _ = write!(stderr(), "\r{} of {} written ", number(&last["written"]), number(&last["read"]));
        }
        Ok(())
    })?;
    if shows_progress {
        let _ = writeln!(stderr());
    }
    let (read, written) = (number(&last["read"]), number(&last["written"]));
    match last["done"].as_bool() {
        Some(true) if client.json => Ok(()),
        Some(true) if dry_run => write_stdout(format!("{} would be written\n", pluralize(read, "quota"))),
        Some(true) => write_stdout(format!("{} written\n", pluralize(written, "quota"))),
        Some(false) if last.get("detail").is_some() => {
            Err(CommandError::Rejected(ErrorResponse { status: 503, problem: last, text: String::new() }))
        }
        _ => Err(CommandError::Failed(format!(
            "the import ended after {written} of {read} quotas; send it again: quotas that are already written stay unchanged"
        ))),
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Writes the lines to a file, or to standard output.
pub(super) fn export(client: &AdminClient, file: Option<&FilePath>, path: ApiPath) -> CommandResult {
    let mut count = 0;
    let mut out = match file {
        None => None,
        Some(file) => {
            let created = File::create(file);
            let created = created
                .map_err(|error| CommandError::Usage(format!("{} can't be written: {error}", file.display())))?;
            Some((file, BufWriter::new(created)))
        }
    };
    client.each_line(ApiRequest::get(path), |line| {
        if line.starts_with(b"{\"after\"") || line.starts_with(b"{\"error\"") {
            let last: Value = serde_json::from_slice(line).unwrap_or_default();
            let why = last["error"].as_str().unwrap_or("the server gave no reason").to_owned();
            return Err(CommandError::Failed(format!("the export is incomplete, the last lines are missing: {why}")));
        }
        count += 1;
        match &mut out {
            None => write_stdout([line, b"\n"].concat()),
            Some((file, out)) => {
                out.write_all(line).and_then(|()| out.write_all(b"\n")).map_err(|e| write_error(file, &e))
            }
        }
    })?;
    match out {
        None => Ok(()),
        Some((file, mut out)) => {
            out.flush().map_err(|error| write_error(file, &error))?;
            super::print_error(format_args!("{} in {}", pluralize(count, "quota"), file.display()));
            Ok(())
        }
    }
}

fn write_error(file: &FilePath, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("{} can't be written: {error}", file.display()))
}
