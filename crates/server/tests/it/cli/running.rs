//! A running server for commands to talk to.

use std::path::Path;

use tollgate_testing::{Server, ServerBuilder};

use crate::cli::{Ran, tollgate_with};
use crate::new_server;

/// A server process. It ends with this.
pub(crate) struct Running {
    server: Server,
    /// Where its admin listener is, as `--server` takes it.
    pub(crate) url: String,
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
        let server = started(new_server().rules(RULES), flags);
        Running { url: format!("{before}{}", server.address("admin")), server }
    }

    /// Killed, and started again with what it had written.
    pub(crate) fn restarted(self, flags: &[&str]) -> Running {
        Running { server: started(self.server.restart(), flags), url: self.url }
    }

    /// Killed.
    pub(crate) fn stopped(mut self) -> Running {
        self.server.kill();
        self
    }

    /// Its working directory.
    pub(crate) fn home(&self) -> &Path {
        self.server.home()
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

/// Ready. The variables of other commands are none of a server's business.
fn started(builder: ServerBuilder, flags: &[&str]) -> Server {
    builder.args(flags).env("TOLLGATE_SERVER", "http://127.0.0.1:1").env("TOLLGATE_TOKEN", "x").start()
}
