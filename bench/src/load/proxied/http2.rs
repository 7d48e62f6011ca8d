//! HTTP/2 connections of clients, by prior knowledge, each with some requests under way.

use std::io::{ErrorKind, Read, Write};

use loona_hpack::Decoder;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::{Answers, Clients, HTTP2_CONNECTIONS, HTTP2_STREAMS};
use crate::load::frame::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, PING, PREFACE, SETTINGS, WHOLE_HEADERS, WINDOW_UPDATE,
};
use crate::load::stock::{GET_HEADERS, GET_PATH, KEY_HEADER, Stock};

/// What the proxy may send before this side says that it goes on, and after how much it says so.
const OUR_WINDOW: u32 = 1 << 30;
const ACKNOWLEDGE_AFTER: u32 = 1 << 20;
const ROOM: usize = 256 * 1024;

/// Entries of the static table (RFC 7541, appendix A).
const METHOD_GET: u8 = 0x80 | 2;
const SCHEME_HTTP: u8 = 0x80 | 6;
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;
/// A pair that both sides are to remember, by the number of its name; 0 if the name follows.
const REMEMBER: u8 = 0x40;
/// The number of the youngest remembered pair.
const YOUNGEST: u8 = 62;
/// A pair that is not remembered, with the name of the youngest remembered pair: a number of four bits, and what exceeds them.
const UNREMEMBERED: [u8; 2] = [0x0f, YOUNGEST - 0x0f];

pub struct Http2Clients {
    connections: Vec<Connection>,
    callers: Stock,
    room: Vec<u8>,
}

struct Connection {
    socket: TcpStream,
    authority: String,
    arrived: Vec<u8>,
    leaving: Vec<u8>,
    is_ready: bool,
    next_stream: u32,
    open: usize,
    unacknowledged: u32,
    decoder: Decoder<'static>,
}

impl Http2Clients {
    pub fn open(address: &str, registry: &Registry) -> Http2Clients {
        let connections = (0..HTTP2_CONNECTIONS).map(|number| Connection::open(address, number, registry)).collect();
        Http2Clients { connections, callers: Stock::callers(), room: vec![0; ROOM] }
    }
}

impl Clients for Http2Clients {
    fn event(&mut self, event: &Event) -> Answers {
        let connection = &mut self.connections[event.token().0];
        let mut answers = Answers::default();
        if event.is_readable() {
            answers.expected += connection.read(&mut self.room);
        }
        while connection.is_ready && connection.open < HTTP2_STREAMS {
            connection.send(self.callers.draw());
        }
        connection.flush();
        answers
    }
}

impl Connection {
    fn open(address: &str, number: usize, registry: &Registry) -> Connection {
        let mut socket = TcpStream::connect(address.parse().expect("an address")).expect("a proxy that listens");
        socket.set_nodelay(true).expect("a socket");
        registry
            .register(&mut socket, Token(number), Interest::READABLE | Interest::WRITABLE)
            .expect("a place in the poll");
        let mut leaving = PREFACE.to_vec();
        Frame { kind: SETTINGS, flags: 0, stream: 0, payload: &[] }.put(&mut leaving);
        Frame { kind: WINDOW_UPDATE, flags: 0, stream: 0, payload: &OUR_WINDOW.to_be_bytes() }.put(&mut leaving);
        Connection {
            socket,
            authority: address.to_owned(),
            arrived: Vec::new(),
            leaving,
            is_ready: false,
            next_stream: 1,
            open: 0,
            unacknowledged: 0,
            decoder: Decoder::new(),
        }
    }

    fn send(&mut self, caller: &[u8]) {
        let stream = self.next_stream;
        let block = if stream == 1 { first_block(&self.authority, caller) } else { later_block(caller) };
        Frame { kind: HEADERS, flags: END_HEADERS | END_STREAM, stream, payload: &block }.put(&mut self.leaving);
        self.next_stream += 2;
        self.open += 1;
    }

    fn flush(&mut self) {
        while !self.leaving.is_empty() {
            match self.socket.write(&self.leaving) {
                Ok(sent) => drop(self.leaving.drain(..sent)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return,
                Err(error) => panic!("the proxy can't be written to: {error}"),
            }
        }
    }

    /// Reads all that has arrived: how many answers ended.
    fn read(&mut self, room: &mut [u8]) -> u64 {
        let mut answers = 0;
        loop {
            let length = match self.socket.read(room) {
                Ok(0) => panic!("the proxy has closed a connection"),
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
                Err(error) => panic!("the proxy can't be read: {error}"),
            };
            self.arrived.extend_from_slice(&room[..length]);
            let arrived = std::mem::take(&mut self.arrived);
            let mut rest = &arrived[..];
            while let Some((frame, after)) = Frame::split(rest) {
                answers += u64::from(self.take(&frame));
                rest = after;
            }
            self.arrived = rest.to_vec();
            if length < room.len() {
                break;
            }
        }
        answers
    }

    /// Takes a frame: whether it ends an answer.
    fn take(&mut self, frame: &Frame<'_>) -> bool {
        match frame.kind {
            HEADERS => {
                assert!(WHOLE_HEADERS.contains(&frame.flags), "headers with flags {:#x}", frame.flags);
                let pairs = self.decoder.decode(frame.payload).expect("headers that can be read");
                let is_good = pairs.iter().any(|(name, value)| name == b":status" && value == b"200");
                assert!(is_good, "an answer of another status: {pairs:?}");
            }
            DATA => {
                self.unacknowledged += frame.payload.len() as u32;
                if self.unacknowledged >= ACKNOWLEDGE_AFTER {
                    let bytes = std::mem::take(&mut self.unacknowledged).to_be_bytes();
                    Frame { kind: WINDOW_UPDATE, flags: 0, stream: 0, payload: &bytes }.put(&mut self.leaving);
                }
            }
            SETTINGS if frame.flags & ACK == 0 => {
                Frame { kind: SETTINGS, flags: ACK, stream: 0, payload: &[] }.put(&mut self.leaving);
                self.is_ready = true;
            }
            PING if frame.flags & ACK == 0 => {
                Frame { kind: PING, flags: ACK, stream: 0, payload: frame.payload }.put(&mut self.leaving);
            }
            SETTINGS | PING | WINDOW_UPDATE => {}
            kind => panic!("a frame of type {kind} on stream {}: {:?}", frame.stream, frame.payload),
        }
        let is_end = matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
        self.open -= usize::from(is_end);
        is_end
    }
}

/// The block of the first request of a connection. What all requests have in common is remembered.
fn first_block(authority: &str, caller: &[u8]) -> Vec<u8> {
    let mut block = vec![METHOD_GET, SCHEME_HTTP, REMEMBER | PATH];
    put_text(&mut block, GET_PATH.as_bytes());
    block.push(REMEMBER | AUTHORITY);
    put_text(&mut block, authority.as_bytes());
    let key = (KEY_HEADER, caller);
    for (name, value) in GET_HEADERS.iter().map(|(name, value)| (*name, value.as_bytes())).chain([key]) {
        block.push(REMEMBER);
        put_text(&mut block, name.as_bytes());
        put_text(&mut block, value);
    }
    block
}

/// The block of every later one: the same pairs, each by its number, and the caller.
fn later_block(caller: &[u8]) -> Vec<u8> {
    let remembered = 2 + GET_HEADERS.len() as u8;
    let mut block = vec![METHOD_GET, SCHEME_HTTP];
    block.extend((1..=remembered).rev().map(|number| 0x80 | (YOUNGEST + number)));
    block.extend_from_slice(&UNREMEMBERED);
    put_text(&mut block, caller);
    block
}

fn put_text(block: &mut Vec<u8>, text: &[u8]) {
    block.push(u8::try_from(text.len()).ok().filter(|length| *length < 0x7f).expect("a short text"));
    block.extend_from_slice(text);
}
