//! A relay to one port that fails on demand, in the ways that networks do.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::time::TransitEnd;
use crate::{eventually, free_port};

/// Passes bytes on between its clients and one port. Dropping it closes its connections.
#[derive(Debug)]
pub struct Relay {
    inner: Arc<RelayInner>,
    /// None while it refuses connections.
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct RelayInner {
    port: u16,
    to: u16,
    /// How long bytes are under way, in each direction.
    delay: Duration,
    state: Mutex<RelayState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RelayState {
    /// New connections are refused.
    refusing: bool,
    /// Nothing passes until [`Relay::pass`], in both directions.
    stalled: bool,
    /// The reply to the next request that contains these bytes is to be lost.
    lose: Option<Vec<u8>>,
    replies_lost: usize,
    /// How many connections the clients used after [`Relay::blackhole`].
    blackholed_uses: u64,
    connections: HashMap<u64, RelayLink>,
    /// How many connections were accepted.
    accepted: u64,
    /// The relay is dropped: nothing waits any more.
    ended: bool,
}

/// Both sides of a connection.
#[derive(Debug)]
struct RelayLink {
    client: TcpStream,
    server: TcpStream,
    /// Its next reply is dropped, and the connection closed.
    loses_reply: bool,
    /// Nothing passes, in either direction, and no side is notified.
    is_blackholed: bool,
    /// Whether the client sent something after that.
    used_in_blackhole: bool,
}

/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 64 * 1024;

impl Relay {
    /// Starts a relay to this port of 127.0.0.1, on a port of its own.
    pub fn to(port: u16) -> Relay {
        Relay::far_from(port, Duration::ZERO)
    }

    /// The same to a place that is far away: bytes are under way for this time, in each direction.
    pub fn far_from(port: u16, delay: Duration) -> Relay {
        const MAX_TRIES: usize = 5;
        let bound = (0..MAX_TRIES).find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).ok());
        let listener = bound.unwrap_or_else(|| panic!("no port for a relay"));
        let own = listener.local_addr().map(|address| address.port());
        let own = own.unwrap_or_else(|error| panic!("a relay without a port: {error}"));
        let inner = RelayInner { port: own, to: port, delay, state: Mutex::default(), changed: Condvar::new() };
        let mut relay = Relay { inner: Arc::new(inner), accepting: None };
        relay.accept(listener);
        relay
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Passes everything on again, stalled bytes included.
    pub fn pass(&mut self) {
        let mut state = self.inner.lock();
        (state.refusing, state.stalled, state.lose) = (false, false, None);
        drop(state);
        self.inner.changed.notify_all();
        if self.accepting.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.inner.port));
            self.accept(listener.unwrap_or_else(|error| panic!("the relay's port is taken: {error}")));
        }
    }

    /// Closes all connections. New ones are accepted.
    pub fn cut(&self) {
        for link in self.inner.lock().connections.values() {
            link.cut();
        }
        // Stalled threads wake and find their connections closed.
        self.inner.changed.notify_all();
    }

    /// Refuses new connections, as a machine without the server does. Open ones stay.
    pub fn refuse(&mut self) {
        self.inner.lock().refusing = true;
        if let Some(accepting) = self.accepting.take() {
            let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.inner.port));
            // The accepting thread checks the flag when a connection arrives.
            let _ = connect();
            let _ = accepting.join();
            // A process that is being started holds the listener too, until it executes its program.
            let _ = eventually(|| connect().err());
        }
    }

    /// Accepts connections and bytes, and passes nothing on until [`Relay::pass`].
    pub fn stall(&self) {
        self.inner.lock().stalled = true;
    }

    /// Drops all further bytes of the open connections, as a firewall does that lost its state: no side is notified. New connections
    /// work.
    pub fn blackhole(&self) {
        for link in self.inner.lock().connections.values_mut() {
            link.is_blackholed = true;
        }
    }

    /// How many connections the clients used after [`Relay::blackhole`].
    pub fn blackholed_uses(&self) -> u64 {
        self.inner.lock().blackholed_uses
    }

    /// Loses the reply to the next request that contains these bytes. The request reaches the server, and the connection closes
    /// instead of the reply.
    pub fn lose_reply_to(&self, request: &[u8]) {
        self.inner.lock().lose = Some(request.to_vec());
    }

    /// How many replies were lost.
    pub fn replies_lost(&self) -> usize {
        self.inner.lock().replies_lost
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> u64 {
        self.inner.lock().accepted
    }

    fn accept(&mut self, listener: TcpListener) {
        let inner = self.inner.clone();
        self.accepting = Some(thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if inner.lock().refusing {
                    return;
                }
                let inner = inner.clone();
                thread::spawn(move || inner.serve(client));
            }
        }));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.inner.lock().ended = true;
        self.refuse();
        self.cut();
    }
}

impl RelayInner {
    fn lock(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, client: TcpStream) -> Option<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)).ok()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok()?;
        }
        let (link, replies) = (RelayLink::try_clone(&client, &server)?, RelayLink::try_clone(&client, &server)?);
        let mut state = self.lock();
        state.accepted += 1;
        let id = state.accepted;
        state.connections.insert(id, link);
        drop(state);
        let other = self.clone();
        let replying = thread::spawn(move || other.pass_replies(id, replies));
        self.pass_requests(id, client, server);
        let _ = replying.join();
        self.lock().connections.remove(&id);
        Some(())
    }

    fn pass_requests(&self, id: u64, mut client: TcpStream, server: TcpStream) {
        let mut way = Way::to(&server, self.delay);
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = client.read(&mut chunk) {
            let bytes = chunk.get(..length).unwrap_or_default();
            let mut state = self.unstalled();
            if state.is_blackholed(id) {
                state.count_use(id);
                continue;
            }
            if state.lose.as_deref().is_some_and(|pattern| contains(bytes, pattern)) {
                state.lose = None;
                if let Some(link) = state.connections.get_mut(&id) {
                    link.loses_reply = true;
                }
            }
            drop(state);
            if !way.pass(bytes) {
                break;
            }
        }
        drop(way);
        // The server still reads what was sent: it must run a request whose reply is lost.
        let _ = server.shutdown(Shutdown::Write);
    }

    fn pass_replies(&self, id: u64, RelayLink { client, mut server, .. }: RelayLink) {
        let mut way = Way::to(&client, self.delay);
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = server.read(&mut chunk) {
            let bytes = chunk.get(..length).unwrap_or_default();
            let mut state = self.unstalled();
            if state.is_blackholed(id) {
                continue;
            }
            if state.connections.get(&id).is_some_and(|link| link.loses_reply) {
                state.replies_lost += 1;
                drop(state);
                let _ = client.shutdown(Shutdown::Both);
                while let Ok(1..) = server.read(&mut chunk) {}
                return;
            }
            drop(state);
            if !way.pass(bytes) {
                break;
            }
        }
        drop(way);
        let _ = client.shutdown(Shutdown::Both);
    }

    /// The state, once bytes may pass.
    fn unstalled(&self) -> MutexGuard<'_, RelayState> {
        let waited = self.changed.wait_while(self.lock(), |state| state.stalled && !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are under way, and the thread that delivers them.
struct Carrier {
    sender: Sender<(TransitEnd, Vec<u8>)>,
    thread: JoinHandle<()>,
}

/// The way of bytes in one direction of a connection.
struct Way {
    stream: Option<TcpStream>,
    /// With a delay: the bytes under way and when they arrive.
    under_way: Option<Carrier>,
    delay: Duration,
}

impl Way {
    fn to(stream: &TcpStream, delay: Duration) -> Way {
        let mut stream = stream.try_clone().ok();
        let under_way = stream.take_if(|_| !delay.is_zero()).map(|mut stream| {
            let (sender, arriving) = mpsc::channel::<(TransitEnd, Vec<u8>)>();
            let thread = thread::spawn(move || {
                for (at, bytes) in arriving {
                    at.wait();
                    if stream.write_all(&bytes).is_err() {
                        return;
                    }
                }
            });
            Carrier { sender, thread }
        });
        Way { stream, under_way, delay }
    }

    /// Sends bytes on their way; false if the connection is closed.
    fn pass(&mut self, bytes: &[u8]) -> bool {
        match (&self.under_way, &mut self.stream) {
            (Some(carrier), _) => carrier.sender.send((TransitEnd::after(self.delay), bytes.to_vec())).is_ok(),
            (None, Some(stream)) => stream.write_all(bytes).is_ok(),
            (None, None) => false,
        }
    }
}

impl Drop for Way {
    /// What is under way arrives.
    fn drop(&mut self) {
        if let Some(Carrier { sender, thread }) = self.under_way.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

impl RelayState {
    fn is_blackholed(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|link| link.is_blackholed)
    }

    /// Counts a connection at its first use.
    fn count_use(&mut self, id: u64) {
        if let Some(link) = self.connections.get_mut(&id) {
            self.blackholed_uses += u64::from(!link.used_in_blackhole);
            link.used_in_blackhole = true;
        }
    }
}

impl RelayLink {
    fn try_clone(client: &TcpStream, server: &TcpStream) -> Option<RelayLink> {
        let (client, server) = (client.try_clone().ok()?, server.try_clone().ok()?);
        Some(RelayLink { client, server, loses_reply: false, is_blackholed: false, used_in_blackhole: false })
    }

    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn contains(bytes: &[u8], pattern: &[u8]) -> bool {
    pattern.is_empty() || bytes.windows(pattern.len()).any(|window| window == pattern)
}
