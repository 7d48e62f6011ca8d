//! Tollgate's own server, with one limit that nobody reaches.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::process::{Server, on_server_core};

/// Every caller has a counter, and none is ever refused: refusals are answered with more words.
const RULES: &str = "
domain: api
entity: user_id
rules:
  - {name: per-user, key: [user_id], limit: 1000000/hour}
";

const WIRES: [&str; 4] = ["grpc", "http", "resp", "admin"];

/// The program, if it is known.
pub fn program(part: &str) -> Option<String> {
    let program = std::env::var("TOLLGATE").ok();
    if program.is_none() {
        println!("{part}: skipped, TOLLGATE does not name the program (make bench does)");
    }
    program
}

/// Starts it in memory, with one worker and this wire alone.
pub fn start(program: &str, wire: &str) -> (Server, Rules) {
    start_with(program, wire, &[])
}

/// The same with these settings.
pub fn start_with(program: &str, wire: &str, settings: &[&str]) -> (Server, Rules) {
    start_as(on_server_core(program), RULES, &[wire], &[&["--workers", "1"], settings].concat())
}

/// Starts it with these rules, wires and settings.
pub fn start_as(mut command: Command, rules: &str, wires: &[&str], settings: &[&str]) -> (Server, Rules) {
    let rules = Rules::write(rules);
    command.args(["serve", "--data", "off", "--rules"]).arg(&rules.0).args(settings);
    for wire in WIRES {
        command.arg(format!("--{wire}")).arg(if wires.contains(&wire) { "127.0.0.1:0" } else { "off" });
    }
    (Server::start(&mut command), rules)
}

/// How many requests passed without the store, as the server counts them.
pub fn passed_uncounted(server: &Server) -> f64 {
    let address = server.address("admin");
    let mut stream = TcpStream::connect(address).expect("a server that listens");
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let lines = answer.lines().filter(|line| line.starts_with("tollgate_failopen_total"));
    let counts: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(!counts.is_empty(), "the server does not count what passes without the store:\n{answer}");
    counts.iter().sum()
}

/// A file of rules or settings, there as long as the server is.
pub struct Rules(PathBuf);

impl Rules {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(rules: &str) -> Rules {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}-{number}.yaml", std::process::id()));
        std::fs::write(&path, rules).expect("room for the rules");
        Rules(path)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
