//! The upstream of a proxy: connections on which requests without a body arrive, and answers that were made before.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::UPSTREAM;

/// The connections of proxies. One that is over leaves its place empty: a request that came on it must not be answered on another.
pub struct Upstream {
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    answer: Vec<u8>,
    room: Vec<u8>,
}

struct Connection {
    socket: TcpStream,
    /// The start of a head that has not ended yet.
    begun: Vec<u8>,
    leaving: Vec<u8>,
    left: usize,
}

const HEAD_END: &[u8] = b"\r\n\r\n";

impl Upstream {
    /// Listens on the socket that is the standard input, and answers with so many bytes.
    pub fn of_bytes(bytes: usize, registry: &Registry) -> Upstream {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("a standard input");
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true).expect("a socket that listens");
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, Token(UPSTREAM), Interest::READABLE).expect("a place in the poll");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n");
        let answer = [head.as_bytes(), &vec![b'x'; bytes]].concat();
        Upstream { listener, connections: Vec::new(), answer, room: vec![0; 64 * 1024] }
    }

    /// Handles an event of one of its tokens. `arrived` gets each request: its connection, and its head.
    pub fn event(&mut self, event: &Event, registry: &Registry, mut arrived: impl FnMut(&mut Upstream, usize, &[u8])) {
        match event.token().0 - UPSTREAM {
            0 => self.accept(registry),
            place => {
                let number = place - 1;
                if event.is_writable() {
                    self.flush(number);
                }
                if event.is_readable() {
                    self.read(number, &mut arrived);
                }
            }
        }
    }

    fn accept(&mut self, registry: &Registry) {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("no connection of a proxy: {error}"),
            };
            socket.set_nodelay(true).expect("a socket");
            let token = Token(UPSTREAM + 1 + self.connections.len());
            registry
                .register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)
                .expect("a place in the poll");
            self.connections.push(Some(Connection { socket, begun: Vec::new(), leaving: Vec::new(), left: 0 }));
        }
    }

    fn read(&mut self, number: usize, arrived: &mut impl FnMut(&mut Upstream, usize, &[u8])) {
        let mut room = std::mem::take(&mut self.room);
        while let Some(connection) = &mut self.connections[number] {
            let length = match connection.socket.read(&mut room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => {
                    self.connections[number] = None;
                    break;
                }
                Ok(length) => length,
            };
            let mut received = std::mem::take(&mut connection.begun);
            received.extend_from_slice(&room[..length]);
            let mut rest = &received[..];
            while let Some(end) = memchr::memmem::find(rest, HEAD_END) {
                let (head, after) = rest.split_at(end + HEAD_END.len());
                arrived(self, number, head);
                rest = after;
            }
            if let Some(connection) = &mut self.connections[number] {
                connection.begun = rest.to_vec();
            }
            // Less than there was room for: all that had arrived.
            if length < room.len() {
                break;
            }
        }
        self.room = room;
    }

    /// Answers a request of a connection, if that is still there.
    pub fn answer(&mut self, number: usize) {
        if let Some(connection) = &mut self.connections[number] {
            connection.leaving.extend_from_slice(&self.answer);
            self.flush(number);
        }
    }

    fn flush(&mut self, number: usize) {
        let Some(connection) = &mut self.connections[number] else { return };
        while connection.left < connection.leaving.len() {
            match connection.socket.write(&connection.leaving[connection.left..]) {
                Ok(sent) => connection.left += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.connections[number] = None;
                    return;
                }
            }
        }
        connection.leaving.clear();
        connection.left = 0;
    }
}
