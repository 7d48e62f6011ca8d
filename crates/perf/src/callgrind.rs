//! Runs a path under valgrind's callgrind, in a process of its own, and reads how many instructions it took.

use std::process::Command;

use crate::RUN_PATH;
use crate::paths::{MEASURED, MeasuredPath};

/// The instructions of one iteration.
pub(crate) fn instructions(path: &MeasuredPath) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{MEASURED}*"))
        .arg(program)
        .args([RUN_PATH, path.name])
        // What is measured has one size, whatever the machine's environment: it is on the stack, which shifts everything.
        .env_clear()
        .env("TOLLGATE_PERF", "1")
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let collected = collected(&log).filter(|count| output.status.success() && *count > 0);
    collected.map(|count| count / path.iterations).ok_or_else(|| format!("{}: valgrind failed:\n{log}", path.name))
}

/// The compiler's version.
pub(crate) fn compiler() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output().map_err(|error| format!("rustc: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The number of instructions in callgrind's report: `==1== Collected : 12345`.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_the_report() {
        let log = "==12== Events    : Ir\n==12== Collected : 2100000\n==12== \n";
        assert_eq!(collected(log), Some(2_100_000));
        assert_eq!(collected("==12== error"), None);
    }
}
