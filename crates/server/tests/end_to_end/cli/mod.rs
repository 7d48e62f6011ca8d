//! The commands of the real binary: input, output and exit codes.

mod convert;
mod demo;
mod explain;
mod gateway;
mod init;
mod inputs;
mod leases;
mod lint;
mod logs;
mod mistakes;
mod operations;
mod quotas;
mod remote;
mod replay;
mod serve;
mod server;
mod simulate;
mod size;
mod terminal;
mod top;
mod why;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_testing::machine;

use crate::repository_path;

/// The exit code and output of a command.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

fn command(args: &[&str]) -> Command {
    machine::share();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(args)
        .current_dir(repository_path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn tollgate(args: &[&str], input: &[u8]) -> CommandOutput {
    tollgate_with(args, input, &[])
}

/// Runs a command with these environment variables.
fn tollgate_with(args: &[&str], input: &[u8], variables: &[(&str, &str)]) -> CommandOutput {
    let mut child = command(args).envs(variables.iter().copied()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that does not read its input may end before it is written.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Writes a rule file with this text, named after the test.
fn rule_file(test: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.yaml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Creates an empty directory, named after the test.
fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn help_version_and_usage_errors_are_printed() {
    // Arguments, exit code, and a part of standard output, or of standard error after a failure.
    let rows: [(&[&str], i32, &str); 18] = [
        (&["--help"], 0, "tollgate replay rules.yaml"),
        (&["--help"], 0, "tollgate quota set"),
        (&["--help"], 0, "`tollgate` is the same as `tollgate serve`"),
        (&["serve", "--help"], 0, "--grpc-tls-cert <PATH>"),
        (&["--version"], 0, "tollgate 0."),
        (&["version"], 0, "tollgate 0."),
        (&["completions", "bash"], 0, "--grpc-tls-cert"),
        (&["man"], 0, ".TH tollgate 1"),
        (&["usage", "--help"], 0, "The caller: the value of the domain's `entity`"),
        (&["replay", "--help"], 0, "\"at\": 1700000000.25"),
        (&["--grcp", "off"], 2, "--grpc"),
        (&["serve", "--grcp", "off"], 2, "--grpc"),
        (&["--grpc", "off", "lint", "rules"], 2, "the command `lint` comes first"),
        (&["lnit"], 2, "lint"),
        (&["lint"], 2, "<PATH>"),
        (&["explain", "a=b"], 2, "--rules"),
        (&["replay"], 2, "<PATH>"),
        (&["explain", "--rules", "x", "--cost=-1"], 2, "--cost"),
    ];
    for (args, code, expected) in rows {
        let output = tollgate(args, b"");
        let (text, empty) = if code == 0 { (&output.out, &output.err) } else { (&output.err, &output.out) };
        assert_eq!(output.code, code, "{args:?}: {}", output.err);
        assert!(text.contains(expected), "{args:?}: {text}");
        assert_eq!(empty, "", "{args:?}");
    }
}
