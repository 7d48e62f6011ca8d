//! The load of a proxy: its clients and its upstream, in one thread, so that nothing is scheduled between them.
//!
//! The socket on which the upstream listens is this process's standard input: the program that started it has the socket for as long
//! as there are proxies, and connections that come between two loads wait there.

mod http1;
mod http2;
mod idle;
mod open_loop;
mod slots;
mod upstream;

use std::time::Duration;

use mio::{Events, Poll};

use super::window::Window;
use http1::Http1Clients;
use http2::Http2Clients;
pub use idle::flood as flood_with_idle;
pub use open_loop::run as open_loop;
pub use slots::{MEAN_SERVICE, SLOTS};
use upstream::Upstream;

/// How many HTTP/1.1 connections there are, with one request at a time each.
pub const CONNECTIONS: usize = 64;
/// How many HTTP/2 connections, and how many requests at a time each.
pub const HTTP2_CONNECTIONS: usize = 8;
pub const HTTP2_STREAMS: usize = 8;

/// How long to wait for something to happen before looking at the clock again.
const PATIENCE: Duration = Duration::from_millis(50);
/// The first token of the upstream; smaller ones are clients'.
const UPSTREAM: usize = 1 << 20;
/// Answers with another status than the expected one, such as those before a limit is reached.
const MOST_UNEXPECTED: u64 = 64;

/// Clients that send the next request when one is answered.
trait Clients {
    /// Handles an event: how many answers have arrived, of the expected status and of others.
    fn event(&mut self, event: &mio::event::Event) -> Answers;
}

#[derive(Clone, Copy, Default)]
struct Answers {
    expected: u64,
    others: u64,
}

/// Keeps all clients busy, and prints how many requests were answered a second. The upstream answers with so many bytes.
pub fn flood(protocol: &str, status: u16, bytes: usize, address: &str, servers: &[u32], seconds: f64) {
    let mut poll = Poll::new().expect("a poll");
    let upstream = Upstream::of_bytes(bytes, poll.registry());
    let window = Window::new(servers, seconds);
    match protocol {
        "http1" => {
            let clients = Http1Clients::open(address, status, 0..CONNECTIONS, poll.registry());
            drive(&mut poll, upstream, clients, window);
        }
        "http2" => {
            let clients = Http2Clients::open(address, poll.registry());
            drive(&mut poll, upstream, clients, window);
        }
        _ => panic!("there is no protocol {protocol}"),
    }
}

fn drive(poll: &mut Poll, mut upstream: Upstream, mut clients: impl Clients, mut window: Window) {
    let mut events = Events::with_capacity(1024);
    let mut unexpected = 0;
    while window.goes_on() {
        poll.poll(&mut events, Some(PATIENCE)).expect("a poll that works");
        for event in &events {
            let token = event.token().0;
            if token >= UPSTREAM {
                upstream.event(event, poll.registry(), |upstream, connection, _| upstream.answer(connection));
                continue;
            }
            let Answers { expected, others } = clients.event(event);
            (0..expected).for_each(|_| window.answered());
            unexpected += others;
            assert!(unexpected <= MOST_UNEXPECTED, "too many answers have another status");
        }
    }
}
