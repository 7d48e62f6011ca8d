//! The description of the HTTP interface against what the server really answers: schemathesis makes requests from it, good and
//! bad ones, and holds every answer to it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::new_server;

/// Of what it makes up, some must be refused, some not be limited, and most pass.
const RULES: &str = "
domain: shop
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 5/hour}
  - {name: free, key: [endpoint], limit: unlimited}
  - {name: slots, key: [], limit: 9000 concurrent}
  - {name: everyone, key: [], limit: 300/hour}
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}
";

#[test]
fn slow_the_server_answers_as_it_is_described() {
    let server = new_server().rules(RULES).listen(&["http"]).start();
    // Not too many.
    is_as_described(&server, &["--max-examples", "30"]);
}

/// It also asks without a token, and with ones that are none.
#[test]
fn slow_the_server_answers_as_it_is_described_where_it_wants_tokens() {
    let builder = new_server().rules(RULES).listen(&["admin", "http"]);
    let server = builder.args(&["--http-auth", "token"]).start();
    let create = |name: &str, scopes: &[&str], as_whom: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["token", "create", name, "--server", &server.url("admin", "")]);
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        if !as_whom.is_empty() {
            command.env("TOLLGATE_TOKEN", as_whom);
        }
        let made = command.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let ops = create("ops", &["read", "quota", "rules", "emergency", "audit"], "");
    let gate = create("gate", &["check"], &ops);
    is_as_described(&server, &["--max-examples", "5", "--header", &format!("Authorization: Bearer {gate}")]);
}

fn is_as_described(server: &Server, more: &[&str]) {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/schemathesis.toml");
    let home = TempDir::new().unwrap();
    let ran = Command::new(programs::in_environment("bin/schemathesis"))
        .args(["--config-file".as_ref(), config.as_os_str()])
        .args(["run", &server.url("http", "/openapi.json"), "--no-color", "--workers", "1"])
        // The same requests every time.
        .args(["--seed", "1", "--generation-database", "none"])
        .args(more)
        // One that a busy machine makes it wait for is no failure.
        .args(["--suppress-health-check", "all", "--request-timeout", "20"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}\n{}", String::from_utf8_lossy(&ran.stderr), server.log());
    for phase in ["✅ Examples", "✅ Coverage", "✅ Fuzzing"] {
        assert!(said.contains(phase), "{said}");
    }
}
