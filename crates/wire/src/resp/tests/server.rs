//! Servers for these tests: Tollgate on a thread, and a real Redis.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate::{Limiter, MemoryConfig, Ruleset};

use super::super::Resp;
use crate::gate::Gate;
use tollgate_net::Stream;
use tollgate_net::closing::Closer;
use tollgate_store::Counters;
use tollgate_telemetry::metrics::Metrics;

/// The timeout of every operation.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Tollgate, on its own thread and runtime.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) resp: Arc<Resp>,
    closer: Option<Closer>,
    thread: Option<JoinHandle<()>>,
}

/// The settings of the gate.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) shadow: bool,
    pub(super) max_in_flight: usize,
    pub(super) command_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { shadow: false, max_in_flight: 1024, command_timeout: PATIENCE }
    }
}

impl Server {
    pub(super) fn start() -> Server {
        Server::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> Server {
        Server::on(MemoryConfig::default().build().into(), settings)
    }

    pub(super) fn on(counters: Counters, settings: Settings) -> Server {
        let limiter = Limiter::new(Ruleset::compile(Vec::new(), 1).unwrap(), counters);
        let metrics = Metrics::new().wire("resp");
        let gate = Gate::new(Arc::new(limiter), settings.shadow, settings.max_in_flight, metrics);
        let resp = Resp::new(Arc::new(gate), settings.command_timeout);
        let (closer, closing) = Closer::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let shared = resp.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let mut ending = closing.clone();
                let mut connections = tokio::task::JoinSet::new();
                loop {
                    tokio::select! {
                        () = ending.begun() => break,
                        accepted = listener.accept() => {
                            let stream = accepted.unwrap().0;
                            stream.set_nodelay(true).unwrap();
                            connections.spawn(shared.clone().serve(Stream::Tcp(stream), closing.clone(), Arc::default()));
                        }
                    }
                }
                while connections.join_next().await.is_some() {}
            });
        });
        Server { address, resp, closer: Some(closer), thread: Some(thread) }
    }

    pub(super) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Announces that the server is about to stop.
    pub(super) fn close(&self) {
        self.closer.as_ref().unwrap().close();
    }

    /// Waits until all connections have ended.
    pub(super) fn join(mut self) {
        self.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A real Redis, killed by its process id.
pub(super) struct Redis {
    pub(super) address: SocketAddr,
    process: Child,
}

impl Redis {
    pub(super) fn start() -> Redis {
        // A port that was free a moment ago; Redis can't report which one it chose.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.port().to_string(), "--save", "", "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is there: `make setup-tests` installs it");
        wait_until_ready(process.stdout.take().unwrap());
        Redis { address: port, process }
    }
}

/// Waits for Redis to report that it is ready; a thread drains the rest of its output.
fn wait_until_ready(mut output: impl Read + Send + 'static) {
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut said, mut some) = (Vec::new(), [0; 1024]);
        while let Ok(read @ 1..) = output.read(&mut some) {
            said.extend_from_slice(&some[..read]);
            if said.windows(5).any(|word| word == b"Ready") {
                let _ = ready.send(());
                said.clear();
            }
        }
    });
    is_ready.recv_timeout(PATIENCE).expect("redis-server says when it is ready");
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The replies to these bytes, until the server closes the connection because no more will come.
pub(super) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A server that has closed already has replied already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    rest(&mut stream)
}

pub(super) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("{error}, after {}", answer.escape_ascii()),
    }
}

/// A command in the protocol's encoding.
pub(super) fn sent(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads this many bytes.
pub(super) fn take(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// The replies to throttles in these bytes.
pub(super) fn fives(bytes: &[u8]) -> Vec<Vec<i64>> {
    let text = std::str::from_utf8(bytes).unwrap();
    let answers = text.split("*5\r\n").skip(1);
    answers.map(|answer| answer.lines().map(|line| line.trim_start_matches(':').parse().unwrap()).collect()).collect()
}

/// Asserts five integers. With the system clock a time may already be a little shorter.
pub(super) fn assert_close(actual: &[i64], expected: &[i64]) {
    /// Smaller numbers are not times that depend on the clock.
    const LEAST: i64 = 1_000;
    let is_close = |(actual, expected): (&i64, &i64)| {
        actual == expected || *expected >= LEAST && (expected - PATIENCE.as_secs() as i64..=*expected).contains(actual)
    };
    assert!(actual.len() == 5 && actual.iter().zip(expected).all(is_close), "{actual:?}, not {expected:?}");
}
