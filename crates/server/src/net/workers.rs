//! Threads that serve connections, one for each core, each with a runtime of its own.
//!
//! One task accepts and hands each connection to the worker that has the fewest: gateways keep few connections for a long time,
//! and where the system spreads them by chance (`SO_REUSEPORT`) one core may get them all.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime;
use tokio::sync::mpsc;

use super::listener::{Accepted, Listener};
use super::tls::Tls;
use super::{Closing, Stream};
use crate::observe::metrics::{ListenerMetrics, OpenConnection};

/// Serves connections of one protocol.
pub(crate) trait Wire: Send + Sync {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> Serving;
}

/// Ends with the connection.
pub(crate) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One listener and what serves its connections.
pub(crate) struct Door {
    pub(crate) listener: Listener,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) max_connections: usize,
    pub(crate) metrics: ListenerMetrics,
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Workers {
    desks: Vec<Desk>,
    threads: Vec<JoinHandle<()>>,
}

/// Where a worker takes its connections from.
#[derive(Debug)]
struct Desk {
    jobs: mpsc::Sender<Job>,
    open: Arc<AtomicUsize>,
}

/// A connection to serve.
struct Job {
    accepted: Accepted,
    wire: Arc<dyn Wire>,
    tls: Option<Arc<Tls>>,
    closing: Closing,
    metrics: ListenerMetrics,
    /// Held while the connection is open.
    guard: Open,
}

/// Counts an open connection until it is dropped.
struct Open {
    counts: [Arc<AtomicUsize>; 2],
    _counted: OpenConnection,
    /// All of these are dropped when the last connection has ended.
    _alive: mpsc::Sender<()>,
}

/// How many connections may wait for a worker.
const WAITING: usize = 1024;
/// How long to leave it when the system has no more sockets for us.
const BREATH: Duration = Duration::from_millis(50);

impl Workers {
    /// Starts this many.
    pub(crate) fn start(count: usize) -> io::Result<Workers> {
        let mut workers = Workers { desks: Vec::new(), threads: Vec::new() };
        for number in 0..count.max(1) {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let (jobs, inbox) = mpsc::channel(WAITING);
            workers.desks.push(Desk { jobs, open: Arc::default() });
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            workers.threads.push(thread.spawn(move || runtime.block_on(work(inbox)))?);
        }
        Ok(workers)
    }

    /// The one with the fewest connections.
    fn idlest(&self) -> Option<&Desk> {
        self.desks.iter().min_by_key(|desk| desk.open.load(Ordering::Relaxed))
    }

    /// Ends the threads and whatever they still do.
    pub(crate) fn stop(self) {
        drop(self.desks);
        for thread in self.threads {
            // A worker that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Door {
    /// Accepts connections until the server is about to stop, and has them served by the workers, or here where there are none.
    /// `alive` is dropped when the last of them has ended.
    pub(crate) async fn open(self, workers: Option<Arc<Workers>>, mut closing: Closing, alive: mpsc::Sender<()>) {
        let open = Arc::new(AtomicUsize::new(0));
        let here = Arc::new(AtomicUsize::new(0));
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.begun() => return,
                accepted = self.listener.accept() => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // A client that went away again, or no more file descriptors: the others still have to be served.
                    tracing::debug!(%error, "a connection could not be accepted");
                    self.metrics.refused();
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
            };
            if open.load(Ordering::Relaxed) >= self.max_connections {
                self.metrics.refused();
                continue;
            }
            let desk = workers.as_deref().and_then(Workers::idlest);
            let counts = [open.clone(), desk.map_or(&here, |desk| &desk.open).clone()];
            let job = Job {
                accepted,
                wire: self.wire.clone(),
                tls: self.tls.clone(),
                closing: closing.clone(),
                metrics: self.metrics.clone(),
                guard: Open::new(counts, self.metrics.accepted(), alive.clone()),
            };
            match desk {
                None => _ = tokio::spawn(serve(job)),
                Some(desk) => {
                    if desk.jobs.try_send(job).is_err() {
                        self.metrics.refused();
                    }
                }
            }
        }
    }
}

/// Serves what comes in until the desk is closed.
async fn work(mut inbox: mpsc::Receiver<Job>) {
    while let Some(job) = inbox.recv().await {
        tokio::spawn(serve(job));
    }
}

/// Serves one connection, on whatever runtime it is called.
async fn serve(job: Job) {
    let Job { accepted, wire, tls, closing, metrics, guard: _guard } = job;
    let stream = match accepted {
        Accepted::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
        Accepted::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
    };
    let stream = match (stream, tls) {
        (Ok(stream), Some(tls)) => tls.secure(stream).await,
        (stream, _) => stream,
    };
    match stream {
        Ok(stream) => wire.serve(stream, closing).await,
        Err(error) => {
            tracing::debug!(%error, "a connection could not be set up");
            metrics.tls_failed();
        }
    }
}

impl Open {
    fn new(counts: [Arc<AtomicUsize>; 2], counted: OpenConnection, alive: mpsc::Sender<()>) -> Open {
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Open { counts, _counted: counted, _alive: alive }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
