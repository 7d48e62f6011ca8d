//! Connections that are idle after one request each, and requests on others meanwhile.

use mio::{Events, Poll};

use super::http1::{Arrived, Connection, Http1Clients};
use super::upstream::Upstream;
use super::{CONNECTIONS, PATIENCE, UPSTREAM, drive};
use crate::load::stock::Stock;
use crate::load::window::Window;
use crate::server::process::resident_memory;

/// How many connections are opened at a time: a listener's queue has room for them.
const AT_A_TIME: usize = 100;
const ROOM: usize = 16 * 1024;

/// Opens connections, and makes one request on each.
struct Opening<'a> {
    address: &'a str,
    poll: Poll,
    upstream: Upstream,
    requests: Stock,
    connections: Vec<Connection>,
}

/// Prints by how many bytes the proxy grows with so many connections; then keeps others busy, as [`flood`](super::flood) does, while
/// these are idle.
pub fn flood(count: usize, bytes: usize, address: &str, servers: &[u32], seconds: f64) {
    let poll = Poll::new().expect("a poll");
    let upstream = Upstream::of_bytes(bytes, poll.registry());
    let mut opening = Opening { address, poll, upstream, requests: Stock::gets(address), connections: Vec::new() };
    // Some that do not count: what the proxy needs once is not a connection's.
    opening.open(AT_A_TIME);
    let before = resident_memory(servers[0]);
    opening.open(count);
    println!("{}", resident_memory(servers[0]) - before);
    let Opening { mut poll, upstream, connections: idle, .. } = opening;
    let tokens = idle.len()..idle.len() + CONNECTIONS;
    let clients = Http1Clients::open(address, 200, tokens, poll.registry());
    drive(&mut poll, upstream, clients, Window::new(servers, seconds));
}

impl Opening<'_> {
    /// Opens so many more.
    fn open(&mut self, count: usize) {
        let all = self.connections.len() + count;
        let mut answered = self.connections.len();
        let (mut events, mut room) = (Events::with_capacity(1024), vec![0; ROOM]);
        while answered < all {
            while self.connections.len() < all.min(answered + AT_A_TIME) {
                let connection = Connection::open(self.address, self.connections.len(), self.poll.registry());
                self.connections.push(connection);
            }
            self.poll.poll(&mut events, Some(PATIENCE)).expect("a poll that works");
            for event in &events {
                if event.token().0 >= UPSTREAM {
                    let registry = self.poll.registry();
                    self.upstream.event(event, registry, |upstream, connection, _| upstream.answer(connection));
                    continue;
                }
                let connection = &mut self.connections[event.token().0];
                if connection.is_connected() {
                    match connection.read(&mut room) {
                        Arrived::Part => {}
                        Arrived::Answer(200) => answered += 1,
                        Arrived::Answer(status) => panic!("an answer of status {status}"),
                        Arrived::End => panic!("the proxy has closed a connection"),
                    }
                } else if connection.may_send(event) {
                    connection.send(self.requests.draw());
                }
            }
        }
    }
}
