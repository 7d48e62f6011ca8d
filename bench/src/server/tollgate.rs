//! Tollgate's own server, with one limit that nobody reaches.

use std::path::PathBuf;

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
    let rules = Rules::write();
    let mut command = on_server_core(program);
    command.args(["serve", "--data", "off", "--workers", "1", "--rules"]).arg(&rules.0);
    for other in WIRES {
        command.arg(format!("--{other}")).arg(if other == wire { "127.0.0.1:0" } else { "off" });
    }
    (Server::start(&mut command), rules)
}

/// The file of rules, there as long as the server is.
pub struct Rules(PathBuf);

impl Rules {
    fn write() -> Rules {
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}.yaml", std::process::id()));
        std::fs::write(&path, RULES).expect("room for the rules");
        Rules(path)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
