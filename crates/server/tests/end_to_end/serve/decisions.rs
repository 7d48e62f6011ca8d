//! The decision log of real servers: searched at once, after a crash and after a stop; replayed; on standard output.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_testing::{Server, ServerBuilder, eventually};

use crate::{http, new_server};

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: 3/year, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 2/year, algorithm: fixed_window, mode: shadow}
";

/// With files in the data directory, and everything logged.
fn builder() -> ServerBuilder {
    with_log(new_server().rules(RULES))
}

fn with_log(builder: ServerBuilder) -> ServerBuilder {
    builder.listen(&["http", "admin"]).args(&["--control", "off", "--decision-log-sample", "100%"])
}

fn check(server: &Server, user: &str) {
    let body = json!({"attributes": {"user": user}}).to_string();
    http::post(&server.url("http", "/v1/ratelimit/check"), &body);
}

fn get(server: &Server, path: &str) -> String {
    http::get(&server.url("admin", path)).body
}

/// The logged decisions about a caller, the oldest first.
fn decisions(server: &Server, user: &str) -> Vec<Value> {
    let page: Value = serde_json::from_str(&get(server, &format!("/admin/v1/decisions?caller={user}"))).unwrap();
    let mut decisions = page["decisions"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
    decisions.reverse();
    decisions
}

fn verdicts(server: &Server, user: &str) -> Vec<String> {
    decisions(server, user).iter().map(|one| one["verdict"].as_str().unwrap().to_owned()).collect()
}

fn written_entries(server: &Server) -> u64 {
    let metrics = get(server, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with("tollgate_decision_log_entries_total{result=\"written\"}"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

fn files(server: &Server) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(server.home().join("data/decisions")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

const FIVE: [&str; 5] = ["allow", "allow", "shadow", "deny", "deny"];

#[test]
fn a_decision_is_found_at_once_and_after_a_crash_with_a_truncated_line() {
    let mut server = builder().start();
    (0..5).for_each(|_| check(&server, "ann"));
    assert_eq!(verdicts(&server, "ann"), FIVE);
    let last = decisions(&server, "ann").pop().unwrap();
    let why = last["why"].as_str().unwrap();
    assert!(
        why.starts_with("ann was refused: per-user allows 3/365d, it had used 3 of 3, and there was room again "),
        "{why}"
    );
    eventually(|| (written_entries(&server) == 5).then_some(())).unwrap();
    server.kill();
    let file = files(&server).pop().unwrap();
    let truncated = br#"{"at":"2026-01-01T00:00:00Z","domain":"api","caller":"ann","descr"#;
    fs::OpenOptions::new().append(true).open(file).unwrap().write_all(truncated).unwrap();
    let again = with_log(server.restart()).start();
    assert_eq!(verdicts(&again, "ann"), FIVE);
    check(&again, "ann");
    // The counters may be those of the last snapshot, so this check may pass.
    assert_eq!(verdicts(&again, "ann").len(), 6);
}

#[test]
fn pending_entries_are_written_when_the_server_stops() {
    let mut server = builder().start();
    (0..5).for_each(|_| check(&server, "ann"));
    // The next write is half a second away.
    eventually(|| (written_entries(&server) == 5).then_some(())).unwrap();
    (0..5).for_each(|_| check(&server, "bob"));
    assert!(server.stop().success());
    let text: String = files(&server).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert_eq!(text.lines().count(), 10, "{text}");
    assert_eq!(verdicts(&with_log(server.restart()).start(), "bob"), FIVE);
}

#[test]
fn a_replay_of_the_log_has_the_same_verdicts() {
    let mut server = builder().start();
    for user in ["ann", "bob"] {
        (0..5).for_each(|_| check(&server, user));
    }
    let logged: Vec<Value> = ["ann", "bob"].into_iter().flat_map(|user| decisions(&server, user)).collect();
    assert!(server.stop().success());
    let file: String = files(&server).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // The lines of `jq -c '.decisions[]'`, and those of the files.
    let api: String = logged.iter().map(|one| format!("{one}\n")).collect();
    for lines in [api, file] {
        let logged: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(logged.len(), 10);
        let mut replay = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["replay", "--rules"])
            .arg(server.home().join("rules/rules.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        replay.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = replay.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let out = String::from_utf8(output.stdout).unwrap();
        let replayed: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (logged, replayed) in logged.iter().zip(&replayed) {
            assert_eq!(replayed["allowed"], logged["verdict"] != "deny", "{logged}\n{replayed}");
            let denied = if logged["verdict"] == "deny" { logged["rule"].clone() } else { Value::Null };
            assert_eq!(replayed["denied_by"], denied, "{logged}\n{replayed}");
        }
        assert_eq!(replayed.len(), 10);
    }
}

#[test]
fn the_log_can_go_to_standard_output() {
    let home = tempfile::TempDir::new().unwrap();
    fs::write(home.path().join("rules.yaml"), RULES).unwrap();
    let out = home.path().join("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["--rules", "rules.yaml", "--grpc", "off", "--admin", "off", "--http", "127.0.0.1:0", "--data", "off"])
        .args(["--decision-log", "stdout"])
        .current_dir(home.path())
        .stdout(fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    let printed = || fs::read_to_string(&out).unwrap();
    let address = eventually(|| {
        let text = printed();
        let is_ready = text.lines().any(|line| line == "ready");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("http"))?;
        is_ready.then(|| line.split_whitespace().next().unwrap().to_owned())
    });
    let url = format!("http://{}/v1/ratelimit/check", address.unwrap());
    for _ in 0..5 {
        http::post(&url, &json!({"attributes": {"user": "ann"}}).to_string());
    }
    let logged = || -> Vec<Value> { printed().lines().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    let all = eventually(|| Some(logged()).filter(|lines| lines.len() >= 3));
    child.kill().unwrap();
    child.wait().unwrap();
    let verdicts: Vec<_> = all.unwrap().iter().map(|line| line["verdict"].clone()).collect();
    assert_eq!(verdicts[verdicts.len() - 3..], ["shadow", "deny", "deny"]);
}

#[test]
fn an_impossible_log_is_an_error_and_a_disabled_one_is_reported() {
    let (code, log) = new_server().args(&["--decision-log", "control", "--control", "off"]).run_to_exit();
    assert!(code == Some(1) && log.contains("there is no control store"), "{log}");
    let off = builder().args(&["--decision-log", "off"]).start();
    check(&off, "ann");
    let response = get(&off, "/admin/v1/decisions?caller=ann");
    assert!(response.contains("decision_log_off"), "{response}");
}
