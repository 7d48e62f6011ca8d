//! Counts the instructions of fixed paths with valgrind, and the bytes of keys and idle connections, and compares them
//! with the budgets in `crates/perf/budgets.txt`.
//!
//! ```text
//! tollgate-perf            fail if a path needs more than its budget allows
//! tollgate-perf --update   write the budgets anew
//! tollgate-perf report LOG [TARGET]
//!                          write the output of `make bench`, or of this target, to docs/benchmarks.md
//! ```
//!
//! Instruction counts do not depend on the load of the machine, so a change that costs 3 % is seen at once. They say
//! nothing about cache misses: `make bench` measures time.

mod budgets;
mod callgrind;
mod client;
mod memory;
mod paths;
mod report;
mod server;

use std::path::Path;
use std::process::{Command, ExitCode};

use budgets::{Budgets, Figure};
use report::Run;

/// The argument with which this program runs one path under valgrind.
const RUN_PATH: &str = "run-path";
/// The argument with which this program measures memory, in a process of its own.
const RUN_MEMORY: &str = "run-memory";

const BENCHMARKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");
const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budgets.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => compare(),
        ["--update"] => update(),
        ["report", log] => report(Path::new(log), "bench"),
        ["report", log, target] => report(Path::new(log), target),
        [RUN_PATH, name] => paths::run(name),
        [RUN_MEMORY] => memory::run(),
        _ => Err("usage: tollgate-perf [--update | report LOG [TARGET]]".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), String> {
    let budgets = Budgets::read(Path::new(BUDGETS))?;
    let figures = measure()?;
    let comparison = budgets.compare(&figures);
    println!("{comparison}");
    match comparison.is_within() || !budgets.is_for(&callgrind::compiler()?) {
        true => Ok(()),
        false => {
            Err("a path is over its budget. Find out why, or raise the budget with the reason in the same commit: \
                      make perf-update"
                .to_owned())
        }
    }
}

fn update() -> Result<(), String> {
    let figures = measure()?;
    Budgets::new(callgrind::compiler()?, figures).write(Path::new(BUDGETS))
}

/// Writes the output of benchmarks to the page about them.
fn report(log: &Path, target: &str) -> Result<(), String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let page = Path::new(BENCHMARKS);
    let run = Run {
        commit: printed("git", &["describe", "--always", "--dirty"])?,
        date: printed("date", &["-u", "+%Y-%m-%d"])?,
        processor: printed(
            "sh",
            &["-c", "echo $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"],
        )?,
    };
    let written = report::replace_results(&read(page)?, target, &run, &read(log)?)?;
    std::fs::write(page, written).map_err(|error| format!("{}: {error}", page.display()))
}

/// What a command prints.
fn printed(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Every figure, instructions first.
fn measure() -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    for path in paths::ALL {
        figures.push(Figure { name: path.name.to_owned(), value: callgrind::instructions(path)? });
    }
    figures.extend(memory::measure()?);
    Ok(figures)
}
