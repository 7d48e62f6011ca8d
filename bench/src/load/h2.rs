//! One HTTP/2 connection that makes unary calls as fast as they are answered, or at set times.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use prost::Message;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};

use super::blocks::{self, Blocks, Part};
use super::frame::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, PING, PREFACE,
    SETTINGS, WHOLE_HEADERS, WINDOW_UPDATE,
};

/// What may be under way in either direction before the other side has to say that it goes on (RFC 9113, 6.9.2).
const FIRST_WINDOW: i64 = 65_535;
/// What the server may send before this side says that it goes on, and after how much it says so.
const OUR_WINDOW: u32 = 1 << 30;
const ACKNOWLEDGE_AFTER: u32 = 1 << 20;
/// Places for calls under way. A call comes back to the place of one long before it, which must be over.
const PLACES: usize = 1 << 16;
/// Room for what arrives in one read.
const ROOM: usize = 256 * 1024;
/// One answer in so many is read as a whole; of the others only how they begin.
const SAMPLED: u32 = 1009;

/// A connection.
pub struct Connection {
    pub socket: TcpStream,
    authority: String,
    arrived: Vec<u8>,
    filled: usize,
    leaving: Vec<u8>,
    left: usize,
    next_stream: u32,
    calls: Vec<Call>,
    open: usize,
    /// None until the server has said what it takes.
    most_open: usize,
    requested_open: usize,
    /// What may still be sent.
    window: i64,
    /// Bytes that have arrived and were not acknowledged to the server.
    unacknowledged: u32,
    blocks: Blocks,
    /// How many an answer has.
    statuses: usize,
}

/// A call under way, or the place for one.
#[derive(Clone, Copy)]
struct Call {
    stage: Stage,
    due: u64,
}

/// What has come of a call so far.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Over,
    Sent,
    Begun,
    Answered,
}

impl Connection {
    /// Connects, with so many calls at a time, each of which has so many statuses in its answer.
    pub fn open(address: &str, calls: usize, statuses: usize) -> Connection {
        let to: SocketAddr = address.parse().expect("an address");
        let socket = TcpStream::connect(to).expect("a server that listens");
        socket.set_nodelay(true).expect("a socket");
        let mut leaving = PREFACE.to_vec();
        Frame { kind: SETTINGS, flags: 0, stream: 0, payload: &[] }.put(&mut leaving);
        let window = OUR_WINDOW.to_be_bytes();
        Frame { kind: WINDOW_UPDATE, flags: 0, stream: 0, payload: &window }.put(&mut leaving);
        Connection {
            socket,
            authority: address.to_owned(),
            arrived: vec![0; ROOM],
            filled: 0,
            leaving,
            left: 0,
            next_stream: 1,
            calls: vec![Call { stage: Stage::Over, due: 0 }; PLACES],
            open: 0,
            most_open: 0,
            requested_open: calls,
            window: FIRST_WINDOW,
            unacknowledged: 0,
            blocks: Blocks::new(),
            statuses,
        }
    }

    /// Whether another call may be made now, with a message of so many bytes.
    pub fn has_room(&self, message: usize) -> bool {
        self.open < self.most_open && self.window >= message as i64
    }

    /// Makes a call; it leaves with the next flush. `due` is given back with the answer.
    pub fn ask(&mut self, message: &[u8], due: u64) {
        let stream = self.next_stream;
        let call = &mut self.calls[place(stream)];
        assert!(call.stage == Stage::Over, "a call was never answered");
        *call = Call { stage: Stage::Sent, due };
        let first = if stream == 1 { blocks::first(&self.authority) } else { Vec::new() };
        let block = if stream == 1 { &first[..] } else { &blocks::LATER };
        Frame { kind: HEADERS, flags: END_HEADERS, stream, payload: block }.put(&mut self.leaving);
        Frame { kind: DATA, flags: END_STREAM, stream, payload: message }.put(&mut self.leaving);
        self.window -= message.len() as i64;
        self.next_stream += 2;
        self.open += 1;
    }

    /// Sends what is to leave, as far as the system takes it.
    pub fn flush(&mut self) {
        while self.left < self.leaving.len() {
            match self.socket.write(&self.leaving[self.left..]) {
                Ok(sent) => self.left += sent,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return,
                Err(error) => panic!("the server can't be written to: {error}"),
            }
        }
        self.leaving.clear();
        self.left = 0;
    }

    /// Reads all that has arrived, and tells of each answer when it was due.
    pub fn read(&mut self, mut answered: impl FnMut(u64)) {
        loop {
            let room = self.arrived.len() - self.filled;
            let length = match self.socket.read(&mut self.arrived[self.filled..]) {
                Ok(0) => panic!("the server has closed a connection"),
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return,
                Err(error) => panic!("the server can't be read: {error}"),
            };
            self.filled += length;
            self.take(&mut answered);
            // Less than there was room for: all that had arrived.
            if length < room {
                return;
            }
        }
    }

    /// Takes the frames that are whole, and keeps the rest for the next read.
    fn take(&mut self, answered: &mut impl FnMut(u64)) {
        let mut bytes = std::mem::take(&mut self.arrived);
        let mut rest = &bytes[..self.filled];
        while let Some((frame, after)) = Frame::split(rest) {
            self.take_frame(&frame, answered);
            rest = after;
        }
        let start = self.filled - rest.len();
        bytes.copy_within(start..self.filled, 0);
        self.filled -= start;
        self.arrived = bytes;
    }

    fn take_frame(&mut self, frame: &Frame<'_>, answered: &mut impl FnMut(u64)) {
        match frame.kind {
            HEADERS => self.take_headers(frame, answered),
            DATA => self.take_data(frame),
            SETTINGS if frame.flags & ACK == 0 => self.take_settings(frame),
            PING if frame.flags & ACK == 0 => {
                Frame { kind: PING, flags: ACK, stream: 0, payload: frame.payload }.put(&mut self.leaving);
            }
            // Those of streams don't matter: a message is smaller than a stream's first window.
            WINDOW_UPDATE if frame.stream == 0 => self.window += i64::from(frame.number()),
            SETTINGS | PING | WINDOW_UPDATE => {}
            kind => panic!("a frame of type {kind} on stream {}: {:?}", frame.stream, frame.payload),
        }
    }

    fn take_headers(&mut self, frame: &Frame<'_>, answered: &mut impl FnMut(u64)) {
        assert!(WHOLE_HEADERS.contains(&frame.flags), "headers with flags {:#x}", frame.flags);
        let call = &mut self.calls[place(frame.stream)];
        if frame.flags & END_STREAM == 0 {
            assert_eq!(call.stage, Stage::Sent, "headers in the wrong place");
            call.stage = Stage::Begun;
            self.blocks.check(frame.payload, Part::Head);
        } else {
            // First what they say: an error has no message before it, and says why.
            self.blocks.check(frame.payload, Part::Trailers);
            assert_eq!(call.stage, Stage::Answered, "an answer without a message");
            call.stage = Stage::Over;
            self.open -= 1;
            answered(call.due);
        }
    }

    fn take_data(&mut self, frame: &Frame<'_>) {
        assert_eq!(frame.flags, 0, "an answer without trailers");
        let call = &mut self.calls[place(frame.stream)];
        assert_eq!(call.stage, Stage::Begun, "a message in the wrong place");
        call.stage = Stage::Answered;
        let sampled = (frame.stream / 2).is_multiple_of(SAMPLED);
        check_message(frame.payload, sampled.then_some(self.statuses));
        self.unacknowledged += frame.payload.len() as u32;
        if self.unacknowledged >= ACKNOWLEDGE_AFTER {
            let unacknowledged = std::mem::take(&mut self.unacknowledged).to_be_bytes();
            Frame { kind: WINDOW_UPDATE, flags: 0, stream: 0, payload: &unacknowledged }.put(&mut self.leaving);
        }
    }

    fn take_settings(&mut self, frame: &Frame<'_>) {
        self.most_open = self.requested_open;
        for (setting, value) in frame.settings() {
            match setting {
                MAX_CONCURRENT_STREAMS => self.most_open = self.requested_open.min(value as usize),
                INITIAL_WINDOW_SIZE => assert!(value >= 1024, "a stream's window is smaller than a message"),
                _ => {}
            }
        }
        Frame { kind: SETTINGS, flags: ACK, stream: 0, payload: &[] }.put(&mut self.leaving);
    }
}

fn place(stream: u32) -> usize {
    (stream / 2) as usize % PLACES
}

/// Fails the run unless the message says that the request is within its limits: read as a whole, so many of them.
fn check_message(data: &[u8], statuses: Option<usize>) {
    // Not compressed, the length, then `overall_code: OK`.
    let [0, l3, l2, l1, l0, message @ ..] = data else { panic!("not a message: {data:?}") };
    assert_eq!(u32::from_be_bytes([*l3, *l2, *l1, *l0]) as usize, message.len(), "a message in one piece");
    assert!(message.starts_with(&[0x08, 0x01]), "an answer that is not OK: {message:?}");
    if let Some(statuses) = statuses {
        let response = RateLimitResponse::decode(message).expect("a RateLimitResponse");
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses.len(), statuses, "not a status for each descriptor: {response:?}");
        let limited = |status: &DescriptorStatus| status.code() == Code::Ok && status.current_limit.is_some();
        assert!(response.statuses.iter().all(limited), "no limit applied: {response:?}");
    }
}
