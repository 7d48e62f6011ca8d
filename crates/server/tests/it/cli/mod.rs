//! The real binary: what goes in, what comes out, and how it ends.

mod demo;
mod explain;
mod inputs;
mod lint;
mod operations;
mod quotas;
mod remote;
mod replay;
mod running;
mod serve;
mod terminal;
mod top;
mod why;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_testing::machine;

/// How a run ended.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    machine::share();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn tollgate(args: &[&str], input: &[u8]) -> Ran {
    tollgate_with(args, input, &[])
}

/// With these variables besides.
fn tollgate_with(args: &[&str], input: &[u8], variables: &[(&str, &str)]) -> Ran {
    let mut child = command(args).envs(variables.iter().copied()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that does not read its input may be gone before it is written.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A rule file of this text, named for the test that needs it.
fn rule_file(test: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.yaml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An empty directory, named for the test that needs it.
fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn help_and_version_and_bad_usage() {
    // Arguments, exit code, and what is told: on standard output if all is well, else on standard error.
    let rows: [(&[&str], i32, &str); 14] = [
        (&["--help"], 0, "tollgate replay --rules"),
        (&["--help"], 0, "tollgate quota set"),
        (&["--help"], 0, "`tollgate` is the same as `tollgate serve`"),
        (&["serve", "--help"], 0, "--grpc-tls-cert <PATH>"),
        (&["--version"], 0, "tollgate 0."),
        (&["replay", "--help"], 0, "\"at\": 1700000000.25"),
        (&["--grcp", "off"], 2, "--grpc"),
        (&["serve", "--grcp", "off"], 2, "--grpc"),
        (&["--grpc", "off", "lint", "rules"], 2, "cannot be used with"),
        (&["lnit"], 2, "lint"),
        (&["lint"], 2, "<PATH>"),
        (&["explain", "a=b"], 2, "--rules"),
        (&["replay"], 2, "--rules"),
        (&["explain", "--rules", "x", "--cost=-1"], 2, "--cost"),
    ];
    for (args, code, told) in rows {
        let ran = tollgate(args, b"");
        let (says, silent) = if code == 0 { (&ran.out, &ran.err) } else { (&ran.err, &ran.out) };
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(says.contains(told), "{args:?}: {says}");
        assert_eq!(silent, "", "{args:?}");
    }
}
