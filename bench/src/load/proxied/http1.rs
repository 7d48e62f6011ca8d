//! HTTP/1.1 connections of clients, each with one request under way.

use std::io::{ErrorKind, Read, Write};
use std::ops::Range;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::{Answers, Clients};
use crate::load::stock::Stock;

/// The most headers that an answer may have.
const MOST_HEADERS: usize = 64;
/// Room for what arrives in one read.
const ROOM: usize = 256 * 1024;

/// Clients that send the next request when one is answered.
pub struct Http1Clients {
    /// Their tokens are one after the other, from the first on.
    connections: Vec<Connection>,
    first: usize,
    requests: Stock,
    status: u16,
    room: Vec<u8>,
}

/// A connection of a client.
pub struct Connection {
    pub socket: TcpStream,
    is_connected: bool,
    in_flight: bool,
    /// The head of an answer that has not arrived as a whole.
    head: Vec<u8>,
    /// The status of an answer whose body is still arriving, and the bytes that are left of it.
    body: Option<(u16, usize)>,
}

/// What came of a read.
pub enum Arrived {
    /// Not the whole answer yet.
    Part,
    Answer(u16),
    /// The connection is over.
    End,
}

impl Http1Clients {
    pub fn open(address: &str, status: u16, tokens: Range<usize>, registry: &Registry) -> Http1Clients {
        let first = tokens.start;
        let connections = tokens.map(|token| Connection::open(address, token, registry)).collect();
        Http1Clients { connections, first, requests: Stock::gets(address), status, room: vec![0; ROOM] }
    }
}

impl Clients for Http1Clients {
    fn event(&mut self, event: &Event) -> Answers {
        let Some(connection) = event.token().0.checked_sub(self.first).and_then(|at| self.connections.get_mut(at))
        else {
            return Answers::default();
        };
        let mut answers = Answers::default();
        if event.is_readable() && connection.in_flight {
            match connection.read(&mut self.room) {
                Arrived::Part => {}
                Arrived::Answer(status) if status == self.status => answers.expected += 1,
                Arrived::Answer(_) => answers.others += 1,
                Arrived::End => panic!("the proxy has closed a connection"),
            }
        }
        if connection.may_send(event) {
            connection.send(self.requests.draw());
        }
        answers
    }
}

impl Connection {
    pub fn open(address: &str, number: usize, registry: &Registry) -> Connection {
        let mut socket = TcpStream::connect(address.parse().expect("an address")).expect("a proxy that listens");
        socket.set_nodelay(true).expect("a socket");
        registry
            .register(&mut socket, Token(number), Interest::READABLE | Interest::WRITABLE)
            .expect("a place in the poll");
        Connection { socket, is_connected: false, in_flight: false, head: Vec::new(), body: None }
    }

    /// Whether a request may be sent now.
    pub fn may_send(&mut self, event: &Event) -> bool {
        self.is_connected |= event.is_writable();
        self.is_connected && !self.in_flight
    }

    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Sends a request, for which the system always has room: there is no other under way.
    pub fn send(&mut self, request: &[u8]) {
        match self.socket.write(request) {
            Ok(sent) => assert_eq!(sent, request.len(), "a request in one piece"),
            Err(error) => panic!("the proxy can't be written to: {error}"),
        }
        self.in_flight = true;
    }

    /// Reads what has arrived.
    pub fn read(&mut self, room: &mut [u8]) -> Arrived {
        loop {
            let length = match self.socket.read(room) {
                Ok(0) => return Arrived::End,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Arrived::Part,
                Err(_) => return Arrived::End,
            };
            if let Some(status) = self.take(&room[..length]) {
                self.in_flight = false;
                return Arrived::Answer(status);
            }
            if length < room.len() {
                return Arrived::Part;
            }
        }
    }

    /// Takes bytes of an answer: its status, if they are the last.
    fn take(&mut self, bytes: &[u8]) -> Option<u16> {
        if let Some((status, left)) = &mut self.body {
            assert!(bytes.len() <= *left, "one answer to one request");
            *left -= bytes.len();
            let status = *status;
            return (*left == 0).then(|| {
                self.body = None;
                status
            });
        }
        // Nearly all heads arrive in one piece.
        if self.head.is_empty() {
            return self.take_head(bytes);
        }
        self.head.extend_from_slice(bytes);
        let head = std::mem::take(&mut self.head);
        self.take_head(&head)
    }

    fn take_head(&mut self, bytes: &[u8]) -> Option<u16> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(start) = head.parse(bytes).expect("an answer of HTTP") else {
            self.head = bytes.to_vec();
            return None;
        };
        let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
        let (length, status) = (length.expect("an answer with its length"), head.code.expect("a status"));
        let body = bytes.len() - start;
        assert!(body <= length, "one answer to one request");
        self.body = (body < length).then_some((status, length - body));
        self.body.is_none().then_some(status)
    }
}
