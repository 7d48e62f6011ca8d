//! Starting, failing to start, and stopping.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tollgate_testing::{TIMEOUT, eventually};

use crate::http::{get, post, try_get};
use crate::new_server;
use crate::serve::grpc::{self, RULES};

const CHECK: &str = "/v1/ratelimit/check";
const BAD: &str = "domain: d\nrules:\n  - {name: a, key: [user], limit: many}\n";

#[test]
fn without_rules_the_server_uses_an_example() {
    let server = new_server().listen(&["http"]).start();
    server.wait_for_log("no rules are set");
    let response = post(&server.url("http", CHECK), r#"{"api_key":"k1","endpoint":"GET /v1/things"}"#);
    assert_eq!(response.status, 200);
    assert!(response.json()["remaining"].is_u64(), "{}", response.body);
}

#[test]
fn two_servers_do_not_share_a_data_directory() {
    let first = new_server().rules(RULES).start();
    let data = first.home().join("data").display().to_string();
    let (code, log) = new_server().rules(RULES).args(&["--data", &data]).run_to_exit();
    assert_eq!(code, Some(1));
    assert!(log.contains(&format!("another server (process {})", first.id())) && log.contains("--data"), "{log}");
}

#[test]
fn an_address_in_use_is_reported_for_every_listener() {
    let first = new_server().rules(RULES).listen(&["http", "grpc"]).start();
    let (http, grpc) = (first.address("http").to_owned(), first.address("grpc").to_owned());
    let (code, log) = new_server().rules(RULES).args(&["--http", &http, "--grpc", &grpc]).run_to_exit();
    assert_eq!(code, Some(1));
    for (flag, address) in [("--http", http), ("--grpc", grpc)] {
        assert!(log.contains(&address) && log.contains(flag), "{flag} {address}: {log}");
    }
}

#[test]
fn invalid_rules_fail_the_first_start_and_degrade_later_ones() {
    let (code, log) = new_server().rules(BAD).run_to_exit();
    assert_eq!(code, Some(1));
    assert!(log.contains("rules.yaml:3"), "{log}");

    // With valid rules from an earlier start the server uses those.
    let mut server = new_server().rules(RULES).listen(&["admin"]).start();
    server.stop();
    server.write_rules(BAD);
    let server = server.restart().listen(&["http", "admin"]).start();
    server.wait_for_log("rules.yaml:3");
    let ready = get(&server.url("admin", "/readyz"));
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["degraded"][0]["part"], "rules");
    let response = post(&server.url("http", CHECK), r#"{"domain":"d","attributes":{"user":"u"}}"#);
    assert_eq!(response.json()["limit"], 3);
    server.write_rules(&RULES.replace("unit: 3", "unit: 4"));
    let limit = || post(&server.url("http", CHECK), r#"{"domain":"d","attributes":{"user":"u"}}"#).json()["limit"] == 4;
    assert!(eventually(|| limit().then_some(())).is_some(), "{}", server.log());
}

#[test]
fn invalid_settings_are_errors() {
    let (code, log) = new_server().args(&["--grcp", "127.0.0.1:0"]).run_to_exit();
    assert_eq!(code, Some(2));
    assert!(log.contains("--grpc"), "{log}");
    let (code, log) = new_server().env("TOLLGATE_WORKERS", "many").run_to_exit();
    assert_eq!(code, Some(2));
    assert!(log.contains("TOLLGATE_WORKERS"), "{log}");
}

/// Starts a check with a body of this length. It is in flight: the server has requested the body.
fn start_check(address: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!("POST {CHECK} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stopping_server_completes_checks_in_flight() {
    let mut server = new_server().rules(RULES).listen(&["grpc", "http", "admin"]).start();
    let mut client = grpc::client(&server).await;
    assert_eq!(grpc::check(&mut client, "u").await, (true, 2));
    let body = r#"{"domain":"d","attributes":{"user":"u"}}"#;
    let mut slow = start_check(server.address("http"), body.len());
    server.signal("TERM");
    let (admin, http) = (server.url("admin", "/readyz"), server.url("http", "/livez"));
    let unready = || try_get(&admin).filter(|response| response.status == 503).map(drop);
    assert!(eventually(unready).is_some(), "{}", server.log());
    assert!(eventually(|| try_get(&http).is_none().then_some(())).is_some(), "new connections are still accepted");
    slow.write_all(body.as_bytes()).unwrap();
    let mut response = String::new();
    slow.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("\"remaining\":1"), "{response}");
    assert!(response.to_ascii_lowercase().contains("connection: close"), "{response}");
    assert!(server.wait().success());
    assert!(client.should_rate_limit(grpc::request("u")).await.is_err());
}

#[test]
fn stopping_takes_no_longer_than_the_shutdown_timeout() {
    let mut server = new_server().rules(RULES).listen(&["http"]).args(&["--shutdown-timeout", "300ms"]).start();
    let _stuck = start_check(server.address("http"), 5);
    assert!(server.stop().success());
    server.wait_for_log("did not end in time");
}

#[test]
fn after_a_signal_to_stop_the_server_serves_for_the_delay() {
    let args = ["--shutdown-delay", "10m"];
    let mut server = new_server().rules(RULES).listen(&["http", "admin"]).args(&args).start();
    server.signal("TERM");
    for listener in ["admin", "http"] {
        let ready = server.url(listener, "/readyz");
        let unready = || try_get(&ready).filter(|response| response.status == 503).map(drop);
        assert!(eventually(unready).is_some(), "{listener}: {}", server.log());
    }
    // On new connections too.
    assert_eq!(post(&server.url("http", CHECK), r#"{"domain":"d","attributes":{"user":"u"}}"#).status, 200);
    // Another signal ends the delay.
    assert!(server.stop().success());
}

#[test]
fn open_listeners_without_access_control_are_reported() {
    let open = ["--http", "0.0.0.0:0", "--resp", "0.0.0.0:0", "--grpc", "0.0.0.0:0", "--grpc-auth", "token"];
    let server = new_server().rules(RULES).args(&open).start();
    for expected in [
        "http: 0.0.0.0:0 can be reached from other machines without access control",
        "set http_auth or http_tls_client_ca, or listen on loopback",
        "resp: 0.0.0.0:0 can be reached",
        "set resp_tls_client_ca",
    ] {
        server.wait_for_log(expected);
    }
    assert!(!server.log().contains("grpc: 0.0.0.0"), "{}", server.log());
}

#[test]
fn no_secret_is_logged() {
    let key = "sk_live_4242424242424242";
    let mut server =
        new_server().listen(&["http", "grpc"]).args(&["--log-level", "trace", "--log-format", "json"]).start();
    for body in [format!(r#"{{"api_key":"{key}","endpoint":"GET /"}}"#), format!(r#"{{"api_key":"{key}","cost":"x"}}"#)]
    {
        post(&server.url("http", CHECK), &body);
    }
    // A stopped server has written its whole log.
    assert!(server.stop().success());
    assert!(!server.log().is_empty());
    assert!(!server.log().contains(key), "{}", server.log());
    for line in server.log().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let builder = new_server().rules(RULES);
    let path = builder.home().join("http.sock");
    let address = format!("unix:{}", path.display());
    let mut server = builder.args(&["--http", &address]).start();
    let (code, log) = new_server().rules(RULES).args(&["--http", &address]).run_to_exit();
    assert_eq!(code, Some(1));
    assert!(log.contains("another server listens on this socket"), "{log}");
    server.kill();
    assert!(path.exists());
    let mut server = server.restart().args(&["--http", &address]).start();
    assert!(server.stop().success());
    assert!(!path.exists());
    fs::write(&path, "not a socket").unwrap();
    let (code, log) = server.restart().args(&["--http", &address]).run_to_exit();
    assert_eq!(code, Some(1), "{log}");
}
