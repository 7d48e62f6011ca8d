//! A running server for commands to ask, on a port that the system chose, ended with its process id.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Ran, tollgate_with};

/// A server process. It ends with this.
pub(crate) struct Running {
    child: Child,
    /// Where its admin listener is, as `--server` takes it.
    pub(crate) url: String,
    /// What it was given for itself alone.
    pub(crate) home: TempDir,
}

/// Callers are by `api_key`; two rules count them.
pub(crate) const RULES: &str = "\
domain: shop
entity: api_key
default_rule: per-key
rules:
  - name: per-key
    key: [api_key]
    limit: {free: 100/minute, pro: 1000/minute, enterprise: unlimited, custom: 1/minute}
  - name: orders
    key: [api_key]
    match: {endpoint: POST /orders}
    limit: 10/minute
";

impl Running {
    /// With counters in memory, and records in its home.
    pub(crate) fn start() -> Running {
        Running::with(&["--admin", "127.0.0.1:0"], "http://")
    }

    /// With an admin listener as these flags have it; `before` is what its address is preceded by in URLs.
    pub(crate) fn with(flags: &[&str], before: &str) -> Running {
        let home = TempDir::new().unwrap();
        std::fs::write(home.path().join("rules.yaml"), RULES).unwrap();
        let (child, address) = spawned(&home, flags);
        Running { child, url: format!("{before}{address}"), home }
    }

    /// Killed, and started again with what it had written.
    pub(crate) fn restarted(self, flags: &[&str]) -> Running {
        self.stopped().started(flags)
    }

    /// Killed.
    pub(crate) fn stopped(mut self) -> Running {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self
    }

    /// Started again, with what it had written before it was stopped.
    pub(crate) fn started(mut self, flags: &[&str]) -> Running {
        (self.child, _) = spawned(&self.home, flags);
        self
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.fed(args, b"")
    }

    /// Runs a command against it, with this on standard input.
    pub(crate) fn fed(&self, args: &[&str], input: &[u8]) -> Ran {
        tollgate_with(args, input, &[("TOLLGATE_SERVER", &self.url)])
    }

    /// Runs a command against it that must be done: what it printed.
    #[track_caller]
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, &*ran.err), (0, ""), "{args:?}: {}", ran.out);
        ran.out
    }

    /// Its document.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(&[args, &["--json"]].concat())).unwrap()
    }

    /// Its documents, one a line.
    #[track_caller]
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let text = self.done(&[args, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that is ready, and where its admin listener is.
fn spawned(home: &TempDir, flags: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--rules", "rules.yaml", "--grpc", "off", "--data", "data"])
        .args(if flags.contains(&"--http") { &[][..] } else { &["--http", "off"] })
        .args(flags)
        .current_dir(home.path())
        .env_clear()
        // Other commands' variables are none of its business.
        .envs([("TOLLGATE_SERVER", "http://127.0.0.1:1"), ("TOLLGATE_TOKEN", "x")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut address = String::new();
    loop {
        let line = lines.next().expect("the server ended before it was ready").unwrap();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("admin") => address = words.next().unwrap().to_owned(),
            Some("ready") => return (child, address),
            _ => {}
        }
    }
}
