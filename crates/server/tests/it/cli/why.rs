//! `tollgate why`, against a real server.

use serde_json::json;

use crate::cli::running::Running;

/// A server with a data plane, to which a caller came too often.
fn limited() -> Running {
    let running = Running::with(&["--admin", "127.0.0.1:0", "--http", "unix:http.sock"], "http://");
    for n in 0..4 {
        check(&running, "tight", if n == 2 { 20 } else { 1 });
    }
    running
}

/// A request that costs this much, to the rule that allows ten.
fn check(running: &Running, caller: &str, cost: u64) {
    use std::io::{Read as _, Write as _};
    let body = json!({"attributes": {"api_key": caller, "endpoint": "POST /orders"}, "cost": cost}).to_string();
    let mut socket = std::os::unix::net::UnixStream::connect(running.home().join("http.sock")).unwrap();
    let head = "POST /v1/ratelimit/check HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json";
    write!(socket, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
}

#[test]
fn the_last_refusal_is_told_in_a_sentence() {
    let running = limited();
    let told = running.done(&["why", "tight"]);
    let (sentence, table) = told.split_once("\n\n").unwrap();
    assert!(
        sentence.ends_with(
            "Z: tight was refused: orders allows 10/minute, it had used 2 of 10, 20 were requested, and there is never room for that many."
        ) || sentence.contains("tight was refused: orders allows 10/minute, tight had used 2 of 10"),
        "{told}"
    );
    assert!(table.contains("VERDICT") && table.contains("deny") && table.contains("2 of 10"), "{told}");
    let one = running.json(&["why", "tight", "--rule", "orders"]);
    assert_eq!((&one["verdict"], &one["rule"], &one["cost"]), (&json!("deny"), &json!("orders"), &json!(20)));
    let at = one["at"].as_str().unwrap();
    assert_eq!(running.json(&["why", "tight", "--at", at]), one);
    assert_eq!(running.lines(&["why", "tight", "--last", "3"]).len(), 1);
}

#[test]
fn of_what_is_not_known_it_is_told_what_is_kept() {
    let running = limited();
    assert_eq!(
        running.done(&["why", "nobody", "--at", "14:32:17"]),
        "no decision is logged for nobody at 14:32:17: the log retains 24 h, with all denials, 0.1 % of other decisions, and all decisions of 0.1 % of callers\n"
    );
    assert_eq!(running.done(&["why", "nobody", "--json"]), "");
    let bad = running.run(&["why", "tight", "--at", "teatime"]);
    assert!(bad.code == 2 && bad.err.contains("--at teatime: write a time of day such as 14:32:17"), "{}", bad.err);
    let off = Running::with(&["--admin", "127.0.0.1:0", "--decision-log", "off"], "http://");
    let told = off.run(&["why", "tight"]);
    assert!(told.code == 1 && told.err.contains("decision_log: off"), "{}", told.err);
}
