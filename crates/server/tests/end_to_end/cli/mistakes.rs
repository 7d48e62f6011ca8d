//! Mistakes on the command line, and messages that name the remedy. Those in rule files are in
//! `crates/rules/tests/files/problems.txt`.

use std::path::Path;

use crate::cli::server::CliServer;
use crate::cli::{directory, rule_file, tollgate};
use crate::repository_path;

const RULES: &str = "\
domain: shop
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 100/minute}
  - {name: orders, key: [api_key], match: {endpoint: \"POST /orders*\"}, limit: 50/minute}
";

#[test]
fn mistakes_are_answered_with_what_to_write() {
    let file = rule_file("mistakes", RULES);
    let rows: [(&[&str], &str); 26] = [
        (&["sevre"], "there is no command `sevre`; did you mean `serve`?"),
        (&["exlain"], "there is no command `exlain`; did you mean `explain`?"),
        (&["frobnicate"], "there is no command `frobnicate`, and no file or directory of that name"),
        (&["serve", "--ruls", &file], "'--rules'"),
        (&["serve", "--http", "8080"], "write 127.0.0.1:8080 for this machine only"),
        (&["serve", "--http", ":8080"], "write 127.0.0.1:8080 for this machine only"),
        (&["serve", "--http", "localhost"], "write the port too: localhost:8080"),
        (&["serve", "--grpc", "localhost"], "write the port too: localhost:8081"),
        (&["serve", "--admin", "localhost"], "write the port too: localhost:8070"),
        (&["serve", "--resp", "localhost"], "write the port too: localhost:6380"),
        (
            &["serve", "--port", "9000"],
            "write --http 127.0.0.1:9000 for checks as JSON, --grpc 127.0.0.1:9000 for Envoy",
        ),
        (&["--listen", "0.0.0.0:9000"], "write --http 0.0.0.0:9000"),
        (&["serve", "--redis", "localhost:6379"], "`localhost:6379` has no scheme; write redis://localhost:6379"),
        (&["serve", "--log-level", "loud"], "write one of error, warn, info, debug, trace"),
        (
            &["explain", "api_key=ada"],
            "name their file first: `tollgate explain rules.yaml KEY=VALUE`, or write --rules PATH",
        ),
        (&["explain", &file, "ada"], "`ada` is not KEY=VALUE; write for instance api_key=ada"),
        (&["explain", &file, "more.yaml"], "more.yaml:1: error: "),
        (&["convert", "nginx.conf"], "--from <nginx|kong|limitador|express-rate-limit>"),
        (&["explain", "--rules", &file, "ada"], "`ada` is not KEY=VALUE; write for instance api_key=ada"),
        (&["explain", &file, "api_key=ada", "more.yaml"], "rule files come before the attributes"),
        (&["explain", &file, "--cost", "five", "a=b"], "a cost is a whole number from 0, for instance --cost 5"),
        (&["explain", &file, "--domain", "shpo", "a=b"], "there is no domain `shpo`; the rules have `shop`"),
        (&["replay", &file, "requests.jsonl"], "requests come from standard input: write `< requests.jsonl`"),
        (&["lint"], "<PATH>"),
        (&["init", "api"], "api-keys"),
        (&["--grpc", "off", "lint", &file], "the command `lint` comes first"),
    ];
    for (args, expected) in rows {
        let output = tollgate(args, b"");
        assert!(matches!(output.code, 1 | 2), "{args:?}: {}{}", output.out, output.err);
        assert!(output.err.contains(expected), "{args:?}: {}", output.err);
    }
    let output = tollgate(&["explain", &file, "apikey=ada"], b"");
    assert!(output.out.contains("\nNo rule knows the attribute `apikey`; did you mean `api_key`?\n"), "{}", output.out);
    let output = tollgate(&["explain", &file, "api_key=ada", "path=/"], b"");
    assert!(output.out.contains("\nNo rule knows the attribute `path`\n"), "{}", output.out);
    let output = tollgate(&["explain", "--json", &file, "apikey=ada", "api_key=ada"], b"");
    assert!(output.out.contains("\"unknown\": [\n    \"apikey\"\n  ]"), "{}", output.out);
}

#[test]
fn natural_commands_work() {
    let file = rule_file("natural", RULES);
    let rows: [(&[&str], &str); 9] = [
        (&["lint", &file], "1 domain, 2 rules: 0 errors"),
        (&["lint", "--rules", &file], "1 domain, 2 rules: 0 errors"),
        (&["explain", &file, "api_key=ada"], "The request is allowed"),
        (&["explain", "--rules", &file, "api_key=ada"], "The request is allowed"),
        (&["replay", &file], ""),
        (&["replay", "--rules", &file], ""),
        (&[&file, "--print-config"], "flag --rules"),
        (&["serve", &file, "--print-config"], "flag --rules"),
        (&["serve", "--redis", "redis://localhost:6379", "--print-config"], "store: redis://localhost:6379"),
    ];
    for (args, expected) in rows {
        let output = tollgate(args, b"");
        assert_eq!(output.code, 0, "{args:?}: {}", output.err);
        assert!(output.out.contains(expected), "{args:?}: {}", output.out);
    }
}

#[test]
fn a_server_says_what_to_write() {
    let server = CliServer::start();
    let rows: [(&[&str], i32, &str); 6] = [
        (&["switch", "set", "orders", "shadow"], 1, "there is no domain `orders`; did you mean shop/orders?"),
        (&["switch", "set", "nothing", "shadow"], 1, "there is no domain `nothing`; the rules have `shop`"),
        (
            &["block", "add", "10.0.0.0/33", "--reason", "x"],
            2,
            "`10.0.0.0/33` looks like an address or a network, and is none",
        ),
        (&["tier", "set", "ada", "gold"], 1, "there is no tier `gold`; the tiers are free, pro, enterprise, custom"),
        (&["rule", "get", "nothing"], 1, "nothing"),
        (&["block", "add", "ada", "--reason", "x", "--for", "tomorrow"], 1, "tomorrow"),
    ];
    for (args, code, expected) in rows {
        let output = server.run(args);
        assert_eq!((output.code, &*output.out), (code, ""), "{args:?}: {}", output.err);
        assert!(output.err.contains(expected), "{args:?}: {}", output.err);
    }
    server.run_ok(&["block", "add", "10.0.0.0/33", "--caller", "--reason", "x"]);
    let mut response = ureq::get(format!("{}/admin/v1/decisions", server.url))
        .config()
        .http_status_as_error(false)
        .build()
        .call()
        .unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    assert!(response.status() == 400 && body.contains("write for instance /admin/v1/decisions?caller=NAME"), "{body}");

    assert_eq!(server.run_ok(&["tier", "get", "ada"]), "free (the default)\n");
    server.run_ok(&["tier", "set", "ada", "pro"]);
    assert_eq!(server.run_ok(&["tier", "get", "ada"]), "pro\n");
    let written: serde_json::Value = serde_json::from_str(&server.run_ok(&["tier", "get", "ada", "--json"])).unwrap();
    assert_eq!(
        written,
        serde_json::json!({"caller": "ada", "domain": "shop", "tier": "pro", "by": "quota", "tier_from": null})
    );
    // A quota for a group of callers is no record of its own for each of them.
    server.run_ok(&["quota", "set", "trial-*", "--tier", "enterprise"]);
    assert_eq!(server.run_ok(&["tier", "get", "trial-7"]), "enterprise\n");
    // Overrides alone do not decide the tier.
    server.run_ok(&["quota", "set", "bob", "--override-rule", "per-key=20/minute"]);
    assert_eq!(server.run_ok(&["tier", "get", "bob"]), "free (the default)\n");
    let listed = server.run_ok(&["rule", "list"]);
    assert!(listed.contains("per-key") && listed.contains("orders") && listed.contains("10/minute"), "{listed}");
    let shown = server.run_ok(&["rule", "get", "orders"]);
    assert!(shown.contains("limit   10/minute") && shown.contains("mode    enforce"), "{shown}");
}

/// The commands of a help text.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter(|line| line.starts_with("tollgate ")).map(str::to_owned).collect()
}

const LOG_LINE: &str =
    "192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] \"GET /orders?key=ada HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n";

const GATEWAY: &str = "
listen: 8000
upstreams: {app: {servers: [127.0.0.1:9000]}}
routes: [{name: all, match: /*, upstream: app}]
";

/// The rules of the README.
fn readme_rules() -> String {
    let readme = std::fs::read_to_string(repository_path("README.md")).unwrap();
    let (_, rest) = readme.split_once("<!-- file: rules.yaml -->\n```yaml\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Examples that need a terminal or a free port, or that take a minute in a build without optimisation: `cli::simulate` runs
/// smaller ones.
const NOT_RUN: [&str; 5] = [
    "tollgate top",
    "tollgate rules.yaml",
    "tollgate init",
    "tollgate why ada --at 14:32:17",
    "tollgate simulate exercise",
];

#[test]
fn examples_of_the_help_work_on_the_rules_of_the_readme() {
    let home = directory("help-examples");
    std::fs::write(home.join("rules.yaml"), readme_rules()).unwrap();
    std::fs::write(home.join("requests.jsonl"), "{\"at\": 1, \"attributes\": {\"api_key\": \"ada\"}}\n").unwrap();
    std::fs::write(home.join("access.log"), LOG_LINE).unwrap();
    std::fs::write(home.join("gateway.yaml"), GATEWAY).unwrap();
    std::fs::write(home.join("app.log"), "{\"ts\": 1700000000, \"user\": {\"id\": \"ada\"}}\n").unwrap();
    let server = CliServer::with_rules(&readme_rules());
    let helps: [&[&str]; 12] = [
        &[],
        &["quota", "set"],
        &["quota", "get"],
        &["tier", "set"],
        &["tier", "get"],
        &["usage"],
        &["switch", "set"],
        &["block", "add"],
        &["emergency", "set"],
        &["counters", "show"],
        &["rule", "list"],
        &["replay"],
    ];
    let mut run = 0;
    for help in helps {
        let text = tollgate(&[help, &["--help"]].concat(), b"").out;
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for example in examples(&text) {
            if NOT_RUN.contains(&&*example) {
                continue;
            }
            run += 1;
            check_example(&home, &server, &example);
        }
    }
    assert!(run > 15, "only {run} examples were found");
}

fn check_example(home: &Path, server: &CliServer, example: &str) {
    let binary = env!("CARGO_BIN_EXE_tollgate");
    let line = example.replacen("tollgate", binary, 1);
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(home)
        .env("TOLLGATE_SERVER", &server.url)
        .output()
        .unwrap();
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
}
