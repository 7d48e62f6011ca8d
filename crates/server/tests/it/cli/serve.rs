//! `tollgate serve`: its settings, and what it makes of bad ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cli::{Ran, directory};

/// Runs in a directory, with these variables and no others that could be settings.
fn run(directory: &Path, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).current_dir(directory).env_clear().envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn print_config_shows_each_value_and_where_it_came_from() {
    let home = directory("serve-print");
    fs::write(home.join("tollgate.yaml"), "http: 127.0.0.1:2\nadmin: 127.0.0.1:2\n").unwrap();
    let variables = [("TOLLGATE_ADMIN", "127.0.0.1:3")];
    let ran = run(&home, &["serve", "--print-config", "--grpc", "127.0.0.1:4"], &variables);
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let rows = [
        ("grpc: 127.0.0.1:4", "flag --grpc"),
        ("admin: 127.0.0.1:3", "environment variable TOLLGATE_ADMIN"),
        ("http: 127.0.0.1:2", "tollgate.yaml:1"),
        ("resp: off", "default"),
    ];
    for (value, origin) in rows {
        let found = ran
            .out
            .lines()
            .any(|line| line.split_once("  # ").is_some_and(|(v, o)| v.trim_end() == value && o == origin));
        assert!(found, "{value} {origin}: {}", ran.out);
    }
    // Without a command it is the same.
    let alone = run(&home, &["--print-config", "--grpc", "127.0.0.1:4"], &variables);
    assert_eq!((alone.code, alone.out), (0, ran.out.clone()));
    // And so is what was printed, as a file.
    fs::write(home.join("printed.yaml"), &ran.out).unwrap();
    let again = run(&home, &["--print-config", "--config", "printed.yaml"], &[]);
    let values = |text: &str| {
        text.lines().map(|line| line.split("  #").next().unwrap().trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again.out), values(&ran.out));
}

#[test]
fn bad_settings_are_all_told_and_nothing_starts() {
    let home = directory("serve-bad");
    fs::write(home.join("tollgate.yaml"), "\ngrcp: x\n").unwrap();
    let ran = run(&home, &["--workers", "none"], &[("TOLLGATE_HTTP", ":80")]);
    assert_eq!((ran.code, &*ran.out), (2, ""));
    let places: Vec<&str> =
        ran.err.lines().filter_map(|line| line.split_once(": error: ")).map(|(place, _)| place).collect();
    assert_eq!(places, ["tollgate.yaml:2", "TOLLGATE_HTTP", "--workers"], "{}", ran.err);
}

#[test]
fn envoys_environment_is_read_when_asked_and_its_open_listeners_are_told() {
    let home = directory("serve-envoy");
    let variables = [("GRPC_PORT", "9"), ("REDIS_URL", "redis:6379"), ("REDIS_PIPELINE_LIMIT", "8")];
    let ran = run(&home, &["--envoy-env", "--print-config"], &variables);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains("\ngrpc: 0.0.0.0:9 ") && ran.out.contains("\nstore: redis://redis:6379 "), "{}", ran.out);
    assert!(
        ran.err.contains("REDIS_PIPELINE_LIMIT: warning: ")
            && ran.err.contains("GRPC_PORT: warning: `grpc` listens on 0.0.0.0:9")
    );
    let ran = run(&home, &["--print-config"], &variables);
    assert!(ran.out.contains("\ngrpc: 127.0.0.1:8081 ") && ran.err.is_empty(), "{}{}", ran.out, ran.err);
}
