//! HTTP's load: connections that stay open, each with one request under way.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::HTTP_CONNECTIONS;
use super::stock::Stock;
use super::window::Window;

const PATIENCE: Duration = Duration::from_millis(50);
/// Room for an answer, headers included.
const ROOM: usize = 16 * 1024;
/// The most headers that an answer may have.
const MOST_HEADERS: usize = 64;

struct Connection {
    socket: TcpStream,
    arrived: Vec<u8>,
    filled: usize,
    connected: bool,
    in_flight: bool,
    /// What an answer must say.
    wants: &'static [u8],
    /// The request that settles what the last answer gave a receipt for, where that is measured.
    settling: Vec<u8>,
}

/// What a check that passes says, and what a settled receipt.
const ALLOWED: &[u8] = br#""allowed":true"#;
const SETTLED: &[u8] = br#""settled":true"#;

/// Keeps a request under way on every connection, and prints how many were answered a second.
pub fn flood(api: &str, address: &str, servers: &[u32], seconds: f64) {
    let mut posts = posts(api, address);
    let mut poll = Poll::new().expect("a poll");
    let mut connections: Vec<Connection> = (0..HTTP_CONNECTIONS).map(|_| Connection::open(address)).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.socket, Token(number), both).expect("a place in the poll");
    }
    let mut events = Events::with_capacity(HTTP_CONNECTIONS);
    let mut window = Window::new(servers, seconds);
    while window.goes_on() {
        poll.poll(&mut events, Some(PATIENCE)).expect("a poll that works");
        for event in &events {
            let connection = &mut connections[event.token().0];
            connection.connected |= event.is_writable();
            if connection.in_flight && event.is_readable() && connection.read(api == "settle", address) {
                window.answered();
                connection.in_flight = false;
            }
            if connection.connected && !connection.in_flight {
                connection.ask_next(&mut posts);
            }
        }
    }
}

/// The same question in the words of either server.
fn posts(api: &str, address: &str) -> Stock {
    match api {
        "check" => Stock::posts(address, "/v1/ratelimit/check", |user| {
            format!(r#"{{"user_id":"{user}","endpoint":"/v1/charges","cost":1}}"#)
        }),
        "receipt" | "settle" => Stock::posts(address, "/v1/ratelimit/check", |user| {
            format!(r#"{{"user_id":"{user}","endpoint":"/v1/answers","cost":2}}"#)
        }),
        "throttle" => Stock::posts(address, "/throttle", |user| {
            format!(r#"{{"key":"{user}","max_burst":1000000,"count_per_period":1000000,"period":3600,"quantity":1}}"#)
        }),
        _ => panic!("there is no API {api}"),
    }
}

impl Connection {
    fn open(address: &str) -> Connection {
        let socket = TcpStream::connect(address.parse().expect("an address")).expect("a server that listens");
        socket.set_nodelay(true).expect("a socket");
        Connection {
            socket,
            arrived: vec![0; ROOM],
            filled: 0,
            connected: false,
            in_flight: false,
            wants: ALLOWED,
            settling: Vec::new(),
        }
    }

    /// Settles what is to be settled, else asks anew.
    fn ask_next(&mut self, posts: &mut Stock) {
        if self.settling.is_empty() {
            self.wants = ALLOWED;
            self.ask(posts.draw());
        } else {
            self.wants = SETTLED;
            let settling = std::mem::take(&mut self.settling);
            self.ask(&settling);
        }
    }

    /// Sends a request, for which the system always has room: there is no other under way.
    fn ask(&mut self, request: &[u8]) {
        match self.socket.write(request) {
            Ok(sent) => assert_eq!(sent, request.len(), "a request in one piece"),
            Err(error) => panic!("the server can't be written to: {error}"),
        }
        self.in_flight = true;
    }

    /// Whether the answer has arrived as a whole. The receipt in it may be one to settle.
    fn read(&mut self, settles: bool, address: &str) -> bool {
        match self.socket.read(&mut self.arrived[self.filled..]) {
            Ok(0) => panic!("the server has closed a connection"),
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("the server can't be read: {error}"),
        }
        let answer = &self.arrived[..self.filled];
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(start) = head.parse(answer).expect("an answer of HTTP") else { return false };
        let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
        let body = &answer[start..];
        match length.expect("an answer with its length") {
            length if length > body.len() => return false,
            length => assert_eq!(length, body.len(), "one answer to one request"),
        }
        let is_good = head.code == Some(200) && memchr::memmem::find(body, self.wants).is_some();
        assert!(is_good, "not the answer it should be: {}", String::from_utf8_lossy(answer));
        if settles && self.wants == ALLOWED {
            self.settling = settling(receipt(body).expect("a receipt"), address);
        }
        self.filled = 0;
        true
    }
}

/// The receipt in the body of an answer.
fn receipt(body: &[u8]) -> Option<&[u8]> {
    const MEMBER: &[u8] = br#""receipt":""#;
    let rest = &body[memchr::memmem::find(body, MEMBER)? + MEMBER.len()..];
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

/// What says that it ended, for less than was reserved.
fn settling(receipt: &[u8], address: &str) -> Vec<u8> {
    let (before, after) = (br#"{"receipt":""#.as_slice(), br#"","outcome":"ok","cost":1}"#.as_slice());
    let length = before.len() + receipt.len() + after.len();
    let head = format!(
        "POST /v1/ratelimit/settle HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), before, receipt, after].concat()
}
