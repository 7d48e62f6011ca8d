//! Slots that a check took while nobody could hear of it: Redis was suspended, and has counted the check since.

use std::io::Write as _;
use std::net::TcpStream;

use tollgate_testing::{Redis, Server, eventually};

use crate::http::{HttpResponse, get, post};
use crate::new_server;

const RULES: &str = "
domain: d
entity: caller
rules:
  - {name: login, key: [caller], match: {kind: security}, limit: 1 concurrent, hold: 10m, policy: security}
  - {name: job, key: [caller], match: {kind: comfort}, limit: 1 concurrent, hold: 10m}
";
const CHECK: &str = "/v1/ratelimit/check";

/// A deadline that a busy machine does not exceed, and that a suspended Redis does.
fn start(redis: &Redis) -> Server {
    let args = ["--store", &redis.url(), "--store-deadline", "500ms", "--store-cool-down", "100ms"];
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&args).start();
    let is_connected = || check(&server, "security", "warm-up").json()["source"] == "store";
    assert!(eventually(|| is_connected().then_some(())).is_some(), "the server is not connected to Redis");
    server
}

fn body(kind: &str, caller: &str) -> String {
    format!(r#"{{"attributes":{{"caller":"{caller}","kind":"{kind}"}}}}"#)
}

fn check(server: &Server, kind: &str, caller: &str) -> HttpResponse {
    post(&server.url("http", CHECK), &body(kind, caller))
}

/// The number of calls that were sent to Redis.
fn calls(server: &Server) -> f64 {
    let text = get(&server.url("admin", "/metrics")).body;
    let value = text.lines().find_map(|line| line.strip_prefix("tollgate_store_script_calls_total ")).unwrap();
    value.parse().unwrap()
}

#[track_caller]
fn assert_slot_is_free(server: &Server, kind: &str, caller: &str) {
    let mut last = None;
    let free = eventually(|| {
        let response = check(server, kind, caller);
        let is_free = response.status == 200 && response.json()["source"] == "store";
        last = Some((response.status, response.body));
        is_free.then_some(())
    });
    assert!(free.is_some(), "{kind}: {last:?}");
    assert_eq!(check(server, kind, caller).status, 429, "there is one slot");
}

#[test]
fn a_slot_of_a_check_that_was_refused_without_an_answer_is_free_again() {
    let mut redis = Redis::start();
    let server = start(&redis);
    redis.pause();
    assert_eq!(check(&server, "security", "c").status, 503);
    redis.resume();
    assert_slot_is_free(&server, "security", "c");
}

#[test]
fn a_slot_of_a_caller_that_closed_its_connection_is_free_again() {
    let mut redis = Redis::start();
    let server = start(&redis);
    for kind in ["security", "comfort"] {
        redis.pause();
        let before = calls(&server);
        let mut connection = TcpStream::connect(server.address("http")).unwrap();
        let body = body(kind, "d");
        let head = format!("POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        assert!(eventually(|| (calls(&server) > before).then_some(())).is_some(), "nothing was sent to Redis");
        drop(connection);
        redis.resume();
        assert_slot_is_free(&server, kind, "d");
    }
}
