//! `tollgate serve`: its settings, and errors in them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cli::{CommandOutput, directory};

/// Runs a command in a directory, with these variables as the only settings.
fn run(directory: &Path, args: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).current_dir(directory).env_clear().envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn print_config_shows_each_value_with_its_origin() {
    let home = directory("serve-print");
    fs::write(home.join("tollgate.yaml"), "http: 127.0.0.1:2\nadmin: 127.0.0.1:2\n").unwrap();
    let variables = [("TOLLGATE_ADMIN", "127.0.0.1:3")];
    let output = run(&home, &["serve", "--print-config", "--grpc", "127.0.0.1:4"], &variables);
    assert_eq!((output.code, &*output.err), (0, ""));
    let rows = [
        ("grpc: 127.0.0.1:4", "flag --grpc"),
        ("admin: 127.0.0.1:3", "environment variable TOLLGATE_ADMIN"),
        ("http: 127.0.0.1:2", "tollgate.yaml:1"),
        ("resp: off", "default"),
    ];
    for (value, origin) in rows {
        let found = output
            .out
            .lines()
            .any(|line| line.split_once("  # ").is_some_and(|(v, o)| v.trim_end() == value && o == origin));
        assert!(found, "{value} {origin}: {}", output.out);
    }
    // `serve` is the default command.
    let alone = run(&home, &["--print-config", "--grpc", "127.0.0.1:4"], &variables);
    assert_eq!((alone.code, alone.out), (0, output.out.clone()));
    // The output is a valid settings file.
    fs::write(home.join("printed.yaml"), &output.out).unwrap();
    let again = run(&home, &["--print-config", "--config", "printed.yaml"], &[]);
    let values = |text: &str| {
        text.lines().map(|line| line.split("  #").next().unwrap().trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again.out), values(&output.out));
}

#[test]
fn all_invalid_settings_are_reported() {
    let home = directory("serve-bad");
    fs::write(home.join("tollgate.yaml"), "\ngrcp: x\n").unwrap();
    let output = run(&home, &["--workers", "none"], &[("TOLLGATE_HTTP", ":80")]);
    assert_eq!((output.code, &*output.out), (2, ""));
    let places: Vec<&str> =
        output.err.lines().filter_map(|line| line.split_once(": error: ")).map(|(place, _)| place).collect();
    assert_eq!(places, ["tollgate.yaml:2", "TOLLGATE_HTTP", "--workers"], "{}", output.err);
}

#[test]
fn envoys_environment_is_read_on_request_and_public_listeners_are_reported() {
    let home = directory("serve-envoy");
    let variables = [("GRPC_PORT", "9"), ("REDIS_URL", "redis:6379"), ("REDIS_PIPELINE_LIMIT", "8")];
    let output = run(&home, &["--envoy-env", "--print-config"], &variables);
    assert_eq!(output.code, 0);
    assert!(
        output.out.contains("\ngrpc: 0.0.0.0:9 ") && output.out.contains("\nstore: redis://redis:6379 "),
        "{}",
        output.out
    );
    assert!(
        output.err.contains("REDIS_PIPELINE_LIMIT: warning: ")
            && output.err.contains("GRPC_PORT: warning: `grpc` listens on 0.0.0.0:9")
    );
    let output = run(&home, &["--print-config"], &variables);
    assert!(output.out.contains("\ngrpc: 127.0.0.1:8081 ") && output.err.is_empty(), "{}{}", output.out, output.err);
}
