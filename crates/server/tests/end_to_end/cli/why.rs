//! `tollgate why` with a real server.

use serde_json::json;

use crate::cli::server::CliServer;

/// A server that refused a caller, with these flags too.
fn server_with_refusals(flags: &[&str]) -> CliServer {
    let listeners = ["--admin", "127.0.0.1:0", "--http", "unix:http.sock"];
    let server = CliServer::with_flags(&[&listeners, flags].concat(), "http://");
    for n in 0..4 {
        check(&server, "tight", if n == 2 { 20 } else { 1 });
    }
    server
}

/// Checks a request of this cost by a rule with a limit of 10.
fn check(server: &CliServer, caller: &str, cost: u64) {
    use std::io::{Read as _, Write as _};
    let body = json!({"attributes": {"api_key": caller, "endpoint": "POST /orders"}, "cost": cost}).to_string();
    let mut socket = std::os::unix::net::UnixStream::connect(server.home().join("http.sock")).unwrap();
    let head = "POST /v1/ratelimit/check HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json";
    write!(socket, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 "), "{response}");
}

#[test]
fn the_last_refusal_is_explained_in_a_sentence() {
    // Of decisions other than denials, a part is logged by default: by chance one of these.
    let server = server_with_refusals(&["--decision-log-sample", "0%", "--decision-log-callers", "0%"]);
    let output = server.run_ok(&["why", "tight"]);
    let (sentence, table) = output.split_once("\n\n").unwrap();
    // The key is private, so it is masked in the log, and found all the same.
    assert!(
        sentence.contains("Z: #")
            && sentence.ends_with(
                " was refused: orders allows 10/minute, it had used 2 of 10, 20 were requested, and there is never room for that many."
            )
            && !sentence.contains("tight"),
        "{output}"
    );
    assert!(table.contains("VERDICT") && table.contains("deny") && table.contains("2 of 10"), "{output}");
    let one = server.json(&["why", "tight", "--rule", "orders"]);
    assert_eq!((&one["verdict"], &one["rule"], &one["cost"]), (&json!("deny"), &json!("orders"), &json!(20)));
    let at = one["at"].as_str().unwrap();
    assert_eq!(server.json(&["why", "tight", "--at", at]), one);
    assert_eq!(server.lines(&["why", "tight", "--last", "3"]).len(), 1);
}

#[test]
fn for_an_unknown_caller_the_retention_is_reported() {
    let server = server_with_refusals(&[]);
    assert_eq!(
        server.run_ok(&["why", "nobody", "--at", "14:32:17"]),
        "no decision is logged for nobody at 14:32:17: the log retains 24 h, with all denials, 0.1 % of other decisions, and all decisions of 0.1 % of callers\n"
    );
    assert_eq!(server.run_ok(&["why", "nobody", "--json"]), "");
    let bad = server.run(&["why", "tight", "--at", "teatime"]);
    assert!(bad.code == 2 && bad.err.contains("--at teatime: write a time of day such as 14:32:17"), "{}", bad.err);
    let off = CliServer::with_flags(&["--admin", "127.0.0.1:0", "--decision-log", "off"], "http://");
    let output = off.run(&["why", "tight"]);
    assert!(output.code == 1 && output.err.contains("decision_log: off"), "{}", output.err);
}
