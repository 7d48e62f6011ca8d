//! A relay to one port that fails in the ways that networks do, when it is told to.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::{eventually, free_port};

/// Passes bytes on between those who connect to it and one port. It ends when it is dropped, and its connections with it.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    /// None while it refuses connections.
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    port: u16,
    to: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// No more connections are taken.
    refusing: bool,
    /// Bytes wait, in both directions.
    stalled: bool,
    /// What the next request contains whose reply is to be lost.
    lose: Option<Vec<u8>>,
    replies_lost: usize,
    /// How many connections were used after they were forgotten.
    asked_in_vain: u64,
    connections: HashMap<u64, Link>,
    /// How many there were.
    accepted: u64,
    /// The relay is gone: nothing waits any more.
    ended: bool,
}

/// Both sides of a connection.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Its next reply is lost, and the client with it.
    doomed: bool,
    /// Nothing passes, in either direction, and nobody is told.
    forgotten: bool,
    /// Whether the client said something after that.
    asked_in_vain: bool,
}

/// The most that is passed on at once.
const CHUNK: usize = 64 * 1024;

impl Relay {
    /// A relay to this port of 127.0.0.1, on a port of its own.
    pub fn to(port: u16) -> Relay {
        const TRIES: usize = 5;
        let bound = (0..TRIES).find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).ok());
        let listener = bound.unwrap_or_else(|| panic!("no port for a relay"));
        let own = listener.local_addr().map(|address| address.port());
        let own = own.unwrap_or_else(|error| panic!("a relay without a port: {error}"));
        let shared = Shared { port: own, to: port, state: Mutex::default(), changed: Condvar::new() };
        let mut relay = Relay { shared: Arc::new(shared), accepting: None };
        relay.accept(listener);
        relay
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Passes everything on again, also what it has held back.
    pub fn pass(&mut self) {
        let mut state = self.shared.lock();
        (state.refusing, state.stalled, state.lose) = (false, false, None);
        drop(state);
        self.shared.changed.notify_all();
        if self.accepting.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.shared.port));
            self.accept(listener.unwrap_or_else(|error| panic!("the relay's port is another's now: {error}")));
        }
    }

    /// Ends all connections that there are. New ones are taken.
    pub fn cut(&self) {
        for link in self.shared.lock().connections.values() {
            link.cut();
        }
        // What a stall holds back has nowhere to go.
        self.shared.changed.notify_all();
    }

    /// Refuses new connections, as a machine without the server does. Those that there are stay.
    pub fn refuse(&mut self) {
        self.shared.lock().refusing = true;
        if let Some(accepting) = self.accepting.take() {
            let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.shared.port));
            // It looks when a connection comes.
            let _ = connect();
            let _ = accepting.join();
            // A process that is being started meanwhile has the listener too, until it runs its own program.
            let _ = eventually(|| connect().err());
        }
    }

    /// Takes connections and bytes and passes nothing on, until it is told to.
    pub fn stall(&self) {
        self.shared.lock().stalled = true;
    }

    /// Passes nothing on any more on the connections that there are, as a firewall that has forgotten them: neither side hears that
    /// they are gone. New ones are taken and served.
    pub fn forget(&self) {
        for link in self.shared.lock().connections.values_mut() {
            link.forgotten = true;
        }
    }

    /// How many forgotten connections were used since.
    pub fn asked_in_vain(&self) -> u64 {
        self.shared.lock().asked_in_vain
    }

    /// The next request that contains these bytes reaches the server. Its reply does not reach the client: the connection ends
    /// instead.
    pub fn lose_reply_to(&self, request: &[u8]) {
        self.shared.lock().lose = Some(request.to_vec());
    }

    /// How many replies were lost.
    pub fn replies_lost(&self) -> usize {
        self.shared.lock().replies_lost
    }

    /// How many connections it has taken.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    fn accept(&mut self, listener: TcpListener) {
        let shared = self.shared.clone();
        self.accepting = Some(thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.lock().refusing {
                    return;
                }
                let shared = shared.clone();
                thread::spawn(move || shared.serve(client));
            }
        }));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.refuse();
        self.cut();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, client: TcpStream) -> Option<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)).ok()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok()?;
        }
        let (link, replies) = (Link::of(&client, &server)?, Link::of(&client, &server)?);
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

    fn pass_requests(&self, id: u64, mut client: TcpStream, mut server: TcpStream) {
        let mut chunk = vec![0; CHUNK];
        while let Ok(length @ 1..) = client.read(&mut chunk) {
            let bytes = chunk.get(..length).unwrap_or_default();
            let mut state = self.unstalled();
            if state.is_forgotten(id) {
                state.ask_in_vain(id);
                continue;
            }
            if state.lose.as_deref().is_some_and(|wanted| contains(bytes, wanted)) {
                state.lose = None;
                if let Some(link) = state.connections.get_mut(&id) {
                    link.doomed = true;
                }
            }
            drop(state);
            if server.write_all(bytes).is_err() {
                break;
            }
        }
        // What was written is still read: the server must have run a request whose reply is lost.
        let _ = server.shutdown(Shutdown::Write);
    }

    fn pass_replies(&self, id: u64, Link { mut client, mut server, .. }: Link) {
        let mut chunk = vec![0; CHUNK];
        while let Ok(length @ 1..) = server.read(&mut chunk) {
            let bytes = chunk.get(..length).unwrap_or_default();
            let mut state = self.unstalled();
            if state.is_forgotten(id) {
                continue;
            }
            if state.connections.get(&id).is_some_and(|link| link.doomed) {
                state.replies_lost += 1;
                drop(state);
                let _ = client.shutdown(Shutdown::Both);
                while let Ok(1..) = server.read(&mut chunk) {}
                return;
            }
            drop(state);
            if client.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// The state, once bytes may pass.
    fn unstalled(&self) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_while(self.lock(), |state| state.stalled && !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_forgotten(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|link| link.forgotten)
    }

    /// Counted once for each connection.
    fn ask_in_vain(&mut self, id: u64) {
        if let Some(link) = self.connections.get_mut(&id) {
            self.asked_in_vain += u64::from(!link.asked_in_vain);
            link.asked_in_vain = true;
        }
    }
}

impl Link {
    fn of(client: &TcpStream, server: &TcpStream) -> Option<Link> {
        let (client, server) = (client.try_clone().ok()?, server.try_clone().ok()?);
        Some(Link { client, server, doomed: false, forgotten: false, asked_in_vain: false })
    }

    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || bytes.windows(wanted.len()).any(|window| window == wanted)
}
