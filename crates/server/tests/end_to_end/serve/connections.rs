//! Connections on which little or nothing is sent, in such numbers that nobody else would get one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;
use tollgate_testing::{Server, TIMEOUT, until};

use crate::http::{get, post, try_get};
use crate::new_server;
use crate::serve::overload::memory;

const RULES: &str = "
domain: d
rules:
  - {name: by-user, key: [user], limit: 1000/day}
";
const CHECK: &str = "/v1/ratelimit/check";
const BODY: &str = r#"{"attributes":{"user":"u"}}"#;

fn connect(server: &Server, listener: &str) -> TcpStream {
    let stream = TcpStream::connect(server.address(listener)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Connections on which this was sent.
fn hold(server: &Server, listener: &str, count: usize, sent: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = connect(server, listener);
        // It may have been closed already.
        let _ = stream.write_all(sent);
        stream
    };
    (0..count).map(open).collect()
}

/// Connections that stay open after a response.
fn idle(server: &Server, listener: &str, count: usize) -> Vec<TcpStream> {
    let mut all = hold(server, listener, count, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for stream in &mut all {
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    all
}

#[test]
fn probes_and_scrapes_are_answered_while_clients_hold_every_admin_connection() {
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    let answers = || ["/livez", "/readyz", "/metrics"].map(|page| get(&server.url("admin", page)).status);
    let silent = hold(&server, "admin", 256, b"");
    assert_eq!(answers(), [200; 3]);
    let half = hold(&server, "admin", 256, b"GET /livez HTTP/1.1\r\nhost:");
    assert_eq!(answers(), [200; 3]);
    drop((silent, half));
    let idle = idle(&server, "admin", 256);
    assert_eq!(answers(), [200; 3]);
    drop(idle);
}

#[test]
fn half_heads_do_not_shut_the_http_listener_and_requests_in_flight_stay() {
    let args = ["--http-max-connections", "8"];
    let server = new_server().rules(RULES).listen(&["http", "resp"]).args(&args).start();
    let mut first = connect(&server, "http");
    let head =
        format!("POST {CHECK} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n", BODY.len());
    first.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    first.read_exact(&mut interim).unwrap();
    let half = hold(&server, "http", 30, b"POST / HTTP/1.1\r\nhost:");
    assert_eq!(post(&server.url("http", CHECK), BODY).status, 200);
    // The request that was in flight before all of them.
    first.write_all(BODY.as_bytes()).unwrap();
    let mut status = [0; 12];
    first.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    drop(half);
}

#[test]
fn unfinished_redis_commands_use_bounded_memory() {
    // This process has the other end of each connection.
    tollgate_net::descriptors::raise_limit();
    let server = new_server().rules(RULES).listen(&["resp"]).args(&["--body-timeout", "5m"]).start();
    let before = memory(server.id());
    let argument = [&b"$60000\r\n"[..], &[b'x'; 60_000], b"\r\n"].concat();
    let unfinished = [&b"*100\r\n"[..], &argument.repeat(17)].concat();
    let open = hold(&server, "resp", 1_000, &unfinished);
    let ping = || {
        let mut stream = connect(&server, "resp");
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    };
    ping();
    let most = memory(server.id());
    assert!(most - before < 300, "{before} MiB, then {most} MiB");
    drop(open);
    ping();
    let after = memory(server.id());
    assert!(after.saturating_sub(before) < 300, "{before} MiB, and {after} MiB when they were closed");
}

/// The server with these limits on open files.
fn with_file_limits(soft: usize, hard: usize, home: &TempDir) -> std::path::PathBuf {
    let script = home.path().join("tollgate");
    let program = env!("CARGO_BIN_EXE_tollgate");
    let text = format!("#!/bin/sh\nulimit -Sn {soft} && ulimit -Hn {hard} && exec {program} \"$@\"\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    script
}

#[test]
fn descriptors_are_reserved_for_operators_and_rules() {
    tollgate_net::descriptors::raise_limit();
    let home = TempDir::new().unwrap();
    let program = with_file_limits(200, 600, &home);
    let server = Server::builder(program).rules(RULES).listen(&["http", "grpc", "admin"]).start();
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert!(files.split_whitespace().take(2).eq(["600", "600"]), "{files}");
    server.wait_for_log("this process may have 600 open files");
    let silent = hold(&server, "http", 700, b"");
    assert_eq!(get(&server.url("admin", "/livez")).status, 200);
    until("an answer", || try_get(&server.url("http", "/livez")).is_some_and(|response| response.status == 200));
    // Other listeners are not shut by it.
    let mut grpc = connect(&server, "grpc");
    grpc.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut settings = [0; 9];
    grpc.read_exact(&mut settings).unwrap();
    server.write_rules(&RULES.replace("1000/day", "77/day"));
    until("the new rules", || post(&server.url("http", CHECK), BODY).json()["limit"] == 77);
    drop(silent);
}
