//! HTTP's load: connections that are kept, each with one request under way.

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
    asked: bool,
}

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
            if connection.asked && event.is_readable() && connection.read() {
                window.answered();
                connection.asked = false;
            }
            if connection.connected && !connection.asked {
                connection.ask(posts.draw());
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
        Connection { socket, arrived: vec![0; ROOM], filled: 0, connected: false, asked: false }
    }

    /// Sends a request, for which the system always has room: there is no other under way.
    fn ask(&mut self, request: &[u8]) {
        match self.socket.write(request) {
            Ok(sent) => assert_eq!(sent, request.len(), "a request in one piece"),
            Err(error) => panic!("the server can't be written to: {error}"),
        }
        self.asked = true;
    }

    /// Whether the answer has arrived as a whole.
    fn read(&mut self) -> bool {
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
        let allowed = head.code == Some(200) && memchr::memmem::find(body, br#""allowed":true"#).is_some();
        assert!(allowed, "not the answer it should be: {}", String::from_utf8_lossy(answer));
        self.filled = 0;
        true
    }
}
