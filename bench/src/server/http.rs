//! `POST /v1/ratelimit/check`, as many as one core answers, next to axum that only reads and answers, and throttlecrab.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::process::Server;
use super::turns::{Contender, Turn, at_least, keys, take_turns};
use super::{peers, tollgate};
use crate::load::HTTP_CONNECTIONS;

pub fn run() {
    let Some(program) = tollgate::program("http") else { return };
    println!("HTTP check, {}, {HTTP_CONNECTIONS} connections with one request at a time each", keys());
    let (ours, _rules) = tollgate::start(&program, "http");
    let (headers, length) = shape_of_answer(ours.address("http"));
    let axum = Server::empty(&["axum", &length.to_string(), &headers]);
    let ask =
        |api: &str, server: &Server, seconds: f64| Turn::of(&["http", api], server.address("http"), server, seconds);
    let peer = peers::throttlecrab("http");
    let ask_ours = |seconds| ask("check", &ours, seconds);
    let ask_axum = |seconds| ask("check", &axum, seconds);
    let ask_peer = |seconds| ask("throttle", peer.as_ref().expect("a peer that is there"), seconds);
    let empty = format!("axum, reads, answers {} headers and {length} bytes", headers.lines().count());
    let mut contenders: Vec<Contender<'_>> = vec![("tollgate", &ask_ours), (&empty, &ask_axum)];
    if peer.is_some() {
        contenders.push(("throttlecrab-server", &ask_peer));
    }
    let turns = take_turns(&contenders);
    at_least("tollgate to axum", turns[0].to(&turns[1]), 0.95);
    if let Some(peer) = turns.get(2) {
        at_least("tollgate to throttlecrab-server", turns[0].to(peer), 1.0);
    }
}

/// The headers of our answer but those that every answer has, a line each, and the length of its body: the empty server's are
/// the same.
fn shape_of_answer(address: &str) -> (String, usize) {
    let body = r#"{"user_id":"u_00000","endpoint":"/v1/charges","cost":1}"#;
    let length = body.len();
    let request = format!(
        "POST /v1/ratelimit/check HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).expect("a server that listens");
    stream.write_all(request.as_bytes()).expect("a request sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
    assert!(head.starts_with("HTTP/1.1 200"), "not the answer it should be: {answer}");
    let every = ["content-length", "date", "connection"];
    let own = head.lines().skip(1).filter(|line| line.split_once(':').is_some_and(|(name, _)| !every.contains(&name)));
    (own.collect::<Vec<_>>().join("\n"), body.len())
}
