//! The decision log of real servers: found at once, after a crash, after a stop; replayed; on standard output.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_testing::{Server, ServerBuilder, eventually};

use crate::new_server;

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: 3/year, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 2/year, algorithm: fixed_window, mode: shadow}
";

/// With files in the data directory, and everything logged.
fn builder() -> ServerBuilder {
    on(new_server().rules(RULES))
}

fn on(builder: ServerBuilder) -> ServerBuilder {
    builder.listen(&["http", "admin"]).args(&["--control", "off", "--decision-log-sample", "100%"])
}

fn body(response: Result<http::Response<ureq::Body>, ureq::Error>) -> String {
    response.unwrap().body_mut().read_to_string().unwrap()
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().new_agent()
}

fn check(server: &Server, user: &str) {
    let asked = json!({"attributes": {"user": user}}).to_string();
    body(agent().post(&server.url("http", "/v1/ratelimit/check")).send(asked));
}

fn get(server: &Server, path: &str) -> String {
    body(agent().get(&server.url("admin", path)).call())
}

/// What was decided about a caller, the oldest first.
fn decisions(server: &Server, user: &str) -> Vec<Value> {
    let told: Value = serde_json::from_str(&get(server, &format!("/admin/v1/decisions?caller={user}"))).unwrap();
    let mut decisions = told["decisions"].as_array().unwrap_or_else(|| panic!("{told}")).clone();
    decisions.reverse();
    decisions
}

fn verdicts(server: &Server, user: &str) -> Vec<String> {
    decisions(server, user).iter().map(|one| one["verdict"].as_str().unwrap().to_owned()).collect()
}

fn written(server: &Server) -> u64 {
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
fn a_decision_is_found_at_once_and_after_a_crash_that_tore_a_line() {
    let mut server = builder().start();
    (0..5).for_each(|_| check(&server, "ann"));
    assert_eq!(verdicts(&server, "ann"), FIVE);
    let last = decisions(&server, "ann").pop().unwrap();
    let why = last["why"].as_str().unwrap();
    assert!(
        why.starts_with("ann was refused: per-user allows 3/365d, it had used 3 of 3, and there was room again "),
        "{why}"
    );
    eventually(|| (written(&server) == 5).then_some(())).unwrap();
    server.kill();
    let file = files(&server).pop().unwrap();
    let torn = br#"{"at":"2026-01-01T00:00:00Z","domain":"api","caller":"ann","descr"#;
    fs::OpenOptions::new().append(true).open(file).unwrap().write_all(torn).unwrap();
    let again = on(server.restart()).start();
    assert_eq!(verdicts(&again, "ann"), FIVE);
    check(&again, "ann");
    // The counters may be as old as their last snapshot, so that it may pass.
    assert_eq!(verdicts(&again, "ann").len(), 6);
}

#[test]
fn what_waits_is_written_when_the_server_stops() {
    let mut server = builder().start();
    (0..5).for_each(|_| check(&server, "ann"));
    // From here on it has half a second to itself.
    eventually(|| (written(&server) == 5).then_some(())).unwrap();
    (0..5).for_each(|_| check(&server, "bob"));
    assert!(server.stop().success());
    let text: String = files(&server).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert_eq!(text.lines().count(), 10, "{text}");
    assert_eq!(verdicts(&on(server.restart()).start(), "bob"), FIVE);
}

#[test]
fn replay_comes_to_the_same_verdicts() {
    let mut server = builder().start();
    for user in ["ann", "bob"] {
        (0..5).for_each(|_| check(&server, user));
    }
    let told: Vec<Value> = ["ann", "bob"].into_iter().flat_map(|user| decisions(&server, user)).collect();
    assert!(server.stop().success());
    let file: String = files(&server).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // As `jq -c '.decisions[]'` gives them, and as the file has them.
    let api: String = told.iter().map(|one| format!("{one}\n")).collect();
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
        let done = replay.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let out = String::from_utf8(done.stdout).unwrap();
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
fn lines_go_to_standard_output_if_that_is_asked_for() {
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
        body(agent().post(&url).send(json!({"attributes": {"user": "ann"}}).to_string()));
    }
    let logged = || -> Vec<Value> { printed().lines().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    let all = eventually(|| Some(logged()).filter(|lines| lines.len() >= 3));
    child.kill().unwrap();
    child.wait().unwrap();
    let verdicts: Vec<_> = all.unwrap().iter().map(|line| line["verdict"].clone()).collect();
    assert_eq!(verdicts[verdicts.len() - 3..], ["shadow", "deny", "deny"]);
}

#[test]
fn a_log_that_can_not_be_or_is_off_is_told() {
    let (code, said) = new_server().args(&["--decision-log", "control", "--control", "off"]).run_to_exit();
    assert!(code == Some(1) && said.contains("there is no control store"), "{said}");
    let off = builder().args(&["--decision-log", "off"]).start();
    check(&off, "ann");
    let told = get(&off, "/admin/v1/decisions?caller=ann");
    assert!(told.contains("decision_log_off"), "{told}");
}
