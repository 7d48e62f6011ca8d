//! A running server for commands.

use std::path::Path;

use tollgate_testing::{Server, ServerBuilder};

use crate::cli::{CommandOutput, tollgate_with};
use crate::new_server;

/// A server process, until this is dropped.
pub(crate) struct CliServer {
    server: Server,
    /// The URL of its admin listener, for `--server`.
    pub(crate) url: String,
}

/// Two rules, keyed by `api_key`. A log has no windows that could end during a test.
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
    algorithm: sliding_log
";

impl CliServer {
    /// Starts a server with counters in memory, and records in its home directory.
    pub(crate) fn start() -> CliServer {
        CliServer::with_flags(&["--admin", "127.0.0.1:0"], "http://")
    }

    /// Starts a server with these rules, which also listens for checks over HTTP.
    pub(crate) fn with_rules(rules: &str) -> CliServer {
        let server = start_server(new_server().rules(rules).listen(&["http", "admin"]), &[]);
        CliServer { url: format!("http://{}", server.address("admin")), server }
    }

    /// Starts a server with these flags for its admin listener. `scheme` is the prefix of its address in URLs.
    pub(crate) fn with_flags(flags: &[&str], scheme: &str) -> CliServer {
        let server = start_server(new_server().rules(RULES), flags);
        CliServer { url: format!("{scheme}{}", server.address("admin")), server }
    }

    /// Kills the server and starts it again in the same home directory.
    pub(crate) fn restart(self, flags: &[&str]) -> CliServer {
        CliServer { server: start_server(self.server.restart(), flags), url: self.url }
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) -> CliServer {
        self.server.kill();
        self
    }

    /// Checks a request over HTTP, which must pass. Only [with rules](Self::with_rules).
    #[track_caller]
    pub(crate) fn check(&self, attributes: &serde_json::Value) {
        let body = serde_json::json!({"attributes": attributes}).to_string();
        let response = crate::http::post(&self.server.url("http", "/v1/ratelimit/check"), &body);
        assert_eq!(response.status, 200, "{}", response.body);
    }

    /// Its working directory.
    pub(crate) fn home(&self) -> &Path {
        self.server.home()
    }

    /// Runs a command with this server.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_input(args, b"")
    }

    /// Runs a command with this server and this standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> CommandOutput {
        tollgate_with(args, input, &[("TOLLGATE_SERVER", &self.url)])
    }

    /// Runs a command that must succeed, and returns its standard output.
    #[track_caller]
    pub(crate) fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.code, &*output.err), (0, ""), "{args:?}: {}", output.out);
        output.out
    }

    /// Runs a command that must succeed, and parses its JSON output.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.run_ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that must succeed, and parses each line of its JSON output.
    #[track_caller]
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let text = self.run_ok(&[args, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Starts a server. It must ignore the variables of other commands.
fn start_server(builder: ServerBuilder, flags: &[&str]) -> Server {
    builder.args(flags).env("TOLLGATE_SERVER", "http://127.0.0.1:1").env("TOLLGATE_TOKEN", "x").start()
}
