//! Many quotas, in and out.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write as _, stderr};
use std::path::Path as FilePath;

use http::Method;
use serde_json::Value;

use super::client::{Call, Remote, input};
use super::path::Path;
use super::{Done, Failure, Refusal, say};
use crate::words::counted;

/// Sends the lines of a file, and tells how far it got.
pub(super) fn import(remote: &Remote, file: &FilePath, domain: Option<&str>, dry_run: bool) -> Done {
    let path = Path::of(&["admin", "v1", "import"]).with("domain", domain).with("dry_run", dry_run.then_some("true"));
    let call = Call::new(Method::POST, path).lines(input(file)?);
    let shows_progress = stderr().is_terminal();
    let mut last = Value::Null;
    remote.each_line(call, |line| {
        if remote.json {
            say([line, b"\n"].concat())?;
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
        Some(true) if remote.json => Ok(()),
        Some(true) if dry_run => say(format!("{} would be written\n", counted(read, "quota"))),
        Some(true) => say(format!("{} written\n", counted(written, "quota"))),
        Some(false) if last.get("detail").is_some() => {
            Err(Failure::Refused(Refusal { status: 503, problem: last, text: String::new() }))
        }
        _ => Err(Failure::Undone(format!(
            "{written} of {read} were written, and then it ended; send it again: what is written already stays as it is"
        ))),
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Writes the lines to a file, or to standard output.
pub(super) fn export(remote: &Remote, file: Option<&FilePath>, path: Path) -> Done {
    let mut count = 0;
    let mut out = match file {
        None => None,
        Some(file) => {
            let made = File::create(file);
            let made = made.map_err(|error| Failure::Usage(format!("{} can't be written: {error}", file.display())))?;
            Some((file, BufWriter::new(made)))
        }
    };
    remote.each_line(Call::get(path), |line| {
        if line.starts_with(b"{\"after\"") || line.starts_with(b"{\"error\"") {
            let told: Value = serde_json::from_slice(line).unwrap_or_default();
            let why = told["error"].as_str().unwrap_or("the server did not say why").to_owned();
            return Err(Failure::Undone(format!("not all could be read, the last lines are missing: {why}")));
        }
        count += 1;
        match &mut out {
            None => say([line, b"\n"].concat()),
            Some((file, out)) => {
                out.write_all(line).and_then(|()| out.write_all(b"\n")).map_err(|e| unwritten(file, &e))
            }
        }
    })?;
    match out {
        None => Ok(()),
        Some((file, mut out)) => {
            out.flush().map_err(|error| unwritten(file, &error))?;
            super::complain(format_args!("{} in {}", counted(count, "quota"), file.display()));
            Ok(())
        }
    }
}

fn unwritten(file: &FilePath, error: &std::io::Error) -> Failure {
    Failure::Undone(format!("{} can't be written: {error}", file.display()))
}
