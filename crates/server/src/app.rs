//! Settings become a running server here. The only file that sees everything.

use std::process::ExitCode;

use crate::config::{Problem, Settings};

/// Runs the server until it is told to stop.
pub(crate) fn run(_settings: Settings, _warnings: Vec<Problem>) -> ExitCode {
    eprintln!("not joined yet");
    ExitCode::FAILURE
}
