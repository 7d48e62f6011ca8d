//! The OpenAPI document and the real responses: schemathesis generates valid and invalid requests from it, and checks every
//! response against it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::new_server;

/// Some generated requests are refused, some have no limit, and most pass.
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
fn slow_responses_conform_to_the_openapi_document() {
    let server = new_server().rules(RULES).listen(&["http"]).start();
    assert_conformance(&server, &["--max-examples", "30"]);
}

/// Also without a token, and with invalid tokens.
#[test]
fn slow_responses_conform_to_the_openapi_document_with_token_authentication() {
    let builder = new_server().rules(RULES).listen(&["admin", "http"]);
    let server = builder.args(&["--http-auth", "token"]).start();
    let create = |name: &str, scopes: &[&str], token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["token", "create", name, "--server", &server.url("admin", "")]);
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        if !token.is_empty() {
            command.env("TOLLGATE_TOKEN", token);
        }
        let created = command.output().unwrap();
        assert!(created.status.success(), "{created:?}");
        String::from_utf8(created.stdout).unwrap().trim().to_owned()
    };
    let ops = create("ops", &["read", "quota", "rules", "emergency", "audit"], "");
    let gate = create("gate", &["check"], &ops);
    assert_conformance(&server, &["--max-examples", "5", "--header", &format!("Authorization: Bearer {gate}")]);
}

fn assert_conformance(server: &Server, args: &[&str]) {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/clients/schemathesis.toml");
    let home = TempDir::new().unwrap();
    let output = Command::new(programs::in_environment("bin/schemathesis"))
        .args(["--config-file".as_ref(), config.as_os_str()])
        .args(["run", &server.url("http", "/openapi.json"), "--no-color", "--workers", "1"])
        // The same requests every time.
        .args(["--seed", "1", "--generation-database", "none"])
        .args(args)
        // A slow response on a busy machine is not a failure.
        .args(["--suppress-health-check", "all", "--request-timeout", "20"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}\n{}", String::from_utf8_lossy(&output.stderr), server.log());
    for phase in ["✅ Examples", "✅ Coverage", "✅ Fuzzing"] {
        assert!(stdout.contains(phase), "{stdout}");
    }
}
