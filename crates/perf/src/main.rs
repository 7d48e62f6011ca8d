//! Counts the instructions of fixed paths with valgrind, and the bytes of keys and idle connections, and compares them
//! with the budgets in `crates/perf/budgets.txt`.
//!
//! ```text
//! tollgate-perf            fail if a path needs more than its budget allows
//! tollgate-perf --update   write the budgets anew
//! ```
//!
//! Instruction counts do not depend on the load of the machine, so a change that costs 3 % is seen at once. They say
//! nothing about cache misses: `make bench` measures time.

mod budgets;
mod callgrind;
mod client;
mod memory;
mod paths;
mod server;

use std::path::Path;
use std::process::ExitCode;

use budgets::{Budgets, Figure};

/// The argument with which this program runs one path under valgrind.
const RUN_PATH: &str = "run-path";
/// The argument with which this program measures memory, in a process of its own.
const RUN_MEMORY: &str = "run-memory";

const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budgets.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => compare(),
        ["--update"] => update(),
        [RUN_PATH, name] => paths::run(name),
        [RUN_MEMORY] => memory::run(),
        _ => Err("usage: tollgate-perf [--update]".to_owned()),
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

/// Every figure, instructions first.
fn measure() -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    for path in paths::ALL {
        figures.push(Figure { name: path.name.to_owned(), value: callgrind::instructions(path)? });
    }
    figures.extend(memory::measure()?);
    Ok(figures)
}
