//! Worker threads that serve connections, one per core, each with its own runtime.
//!
//! One task accepts connections and hands each to the worker with the fewest. Gateways hold few connections for a long time, so
//! random distribution (`SO_REUSEPORT`) could put them all on one core.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{self, RuntimeMetrics};
use tokio::sync::mpsc;

use super::descriptors::ConnectionShare;
use super::listener::{AcceptedStream, Listener};
use super::slots::{Room, Slot, Slots};
use super::tls::Tls;
use super::{Closing, Stream};
use tollgate_telemetry::metrics::{ListenerMetrics, OpenConnection};

/// Serves connections of one protocol.
pub trait Wire: Send + Sync {
    /// Has to call `slot` when the first request arrives.
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing, slot: Arc<Slot>) -> ConnectionFuture;
}

/// Completes when the connection ends.
pub type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener and the protocol that it serves.
pub struct Endpoint {
    pub listener: Listener,
    pub wire: Arc<dyn Wire>,
    pub tls: Option<Arc<Tls>>,
    /// At the bound a new connection takes the place of one that waits for a request, or is closed.
    pub max_connections: usize,
    /// The bound on connections of all listeners; `None` for the admin listener, for which descriptors are reserved.
    pub share: Option<ConnectionShare>,
    pub metrics: ListenerMetrics,
}

/// The worker threads.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<WorkerHandle>,
    threads: Vec<JoinHandle<()>>,
}

/// The queue of a worker, and the number of its connections.
#[derive(Debug)]
struct WorkerHandle {
    jobs: mpsc::Sender<Job>,
    open: Arc<AtomicUsize>,
}

/// How long each worker has been busy. Empty until they start.
#[derive(Clone, Debug, Default)]
pub struct BusyTimes(Arc<Mutex<Vec<RuntimeMetrics>>>);

/// A connection for a worker.
struct Job {
    accepted: AcceptedStream,
    wire: Arc<dyn Wire>,
    tls: Option<Arc<Tls>>,
    closing: Closing,
    metrics: ListenerMetrics,
    slot: Arc<Slot>,
    guard: ConnectionGuard,
}

/// Counts a connection as open until it is dropped.
struct ConnectionGuard {
    counts: [Arc<AtomicUsize>; 3],
    _counted: OpenConnection,
    /// The receiver ends when the last of these is dropped.
    _alive: mpsc::Sender<()>,
}

/// Connections that may wait for a worker.
const MAX_WAITING: usize = 1024;
/// The pause after `accept` has failed, for instance without file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// The pause when too many connections are being closed to make room for others.
const EVICTION_PAUSE: Duration = Duration::from_millis(50);

impl Workers {
    /// Starts the threads, whose times are added to `busy`.
    pub fn start(count: usize, busy: &BusyTimes) -> io::Result<Workers> {
        let mut workers = Workers { handles: Vec::new(), threads: Vec::new() };
        for number in 0..count.max(1) {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let (jobs, inbox) = mpsc::channel(MAX_WAITING);
            workers.handles.push(WorkerHandle { jobs, open: Arc::default() });
            busy.add(runtime.metrics());
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            workers.threads.push(thread.spawn(move || runtime.block_on(work(inbox)))?);
        }
        Ok(workers)
    }

    /// The worker with the fewest connections.
    fn least_loaded(&self) -> Option<&WorkerHandle> {
        self.handles.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed))
    }

    /// Stops the threads and drops their connections.
    pub fn stop(self) {
        drop(self.handles);
        for thread in self.threads {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

impl BusyTimes {
    /// For how long each worker did anything but wait, since its start. It includes the time in which the system gave its
    /// processor to others.
    pub fn read(&self) -> Vec<Duration> {
        self.lock().iter().map(|worker| worker.worker_total_busy_duration(0)).collect()
    }

    fn add(&self, worker: RuntimeMetrics) {
        self.lock().push(worker);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RuntimeMetrics>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// Accepts connections until shutdown. The workers serve them, or this runtime if there are none. `alive` is dropped when the
    /// last connection has ended.
    pub async fn run(self, workers: Option<Arc<Workers>>, mut closing: Closing, alive: mpsc::Sender<()>) {
        let open = Arc::new(AtomicUsize::new(0));
        let local = Arc::new(AtomicUsize::new(0));
        let slots = Slots::default();
        let shared = self.share.as_ref().map_or_else(Arc::default, |share| {
            share.join(&slots);
            share.open().clone()
        });
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.begun() => return,
                accepted = self.listener.accept() => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The client has gone, or there are no file descriptors left: the other clients still have to be served.
                    tracing::debug!(%error, "accepting a connection failed");
                    self.metrics.refused();
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            let mut room = self.room(open.load(Ordering::Relaxed), &slots);
            if room == Room::Evicting {
                // Their workers have to get to it.
                tokio::time::sleep(EVICTION_PAUSE).await;
                room = self.room(open.load(Ordering::Relaxed), &slots);
            }
            match room {
                Room::Free => {}
                // Let the connection end, which may be served by this thread.
                Room::Evicted => tokio::task::yield_now().await,
                Room::Evicting | Room::None => {
                    self.metrics.refused();
                    continue;
                }
            }
            let worker = workers.as_deref().and_then(Workers::least_loaded);
            let counts = [open.clone(), worker.map_or(&local, |worker| &worker.open).clone(), shared.clone()];
            let job = Job {
                accepted,
                wire: self.wire.clone(),
                tls: self.tls.clone(),
                closing: closing.clone(),
                metrics: self.metrics.clone(),
                slot: Arc::new(slots.open()),
                guard: ConnectionGuard::new(counts, self.metrics.accepted(), alive.clone()),
            };
            match worker {
                None => _ = tokio::spawn(serve(job)),
                Some(worker) => {
                    if worker.jobs.try_send(job).is_err() {
                        self.metrics.refused();
                    }
                }
            }
        }
    }

    /// Makes room for a new connection. One that is closed for it is counted as refused.
    fn room(&self, open: usize, slots: &Slots) -> Room {
        let room = match Room::make(open, self.max_connections, || slots.evict()) {
            Room::Free => self.share.as_ref().map_or(Room::Free, ConnectionShare::make_room),
            room => room,
        };
        if room == Room::Evicted {
            self.metrics.refused();
        }
        room
    }
}

/// Serves connections until the queue is closed.
async fn work(mut inbox: mpsc::Receiver<Job>) {
    while let Some(job) = inbox.recv().await {
        tokio::spawn(serve(job));
    }
}

/// Serves one connection on the current runtime, unless it has to make room for another.
async fn serve(job: Job) {
    let Job { accepted, wire, tls, closing, metrics, slot, guard: _guard } = job;
    let evicted = slot.evicted();
    tokio::select! {
        biased;
        () = serve_stream(accepted, wire, tls, closing, metrics, slot) => {}
        () = evicted => {}
    }
}

async fn serve_stream(
    accepted: AcceptedStream,
    wire: Arc<dyn Wire>,
    tls: Option<Arc<Tls>>,
    closing: Closing,
    metrics: ListenerMetrics,
    slot: Arc<Slot>,
) {
    let stream = match accepted {
        AcceptedStream::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
        AcceptedStream::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
    };
    let stream = match (stream, tls) {
        (Ok(stream), Some(tls)) => tls.secure(stream).await,
        (stream, _) => stream,
    };
    match stream {
        Ok(stream) => wire.serve(stream, closing, slot).await,
        Err(error) => {
            tracing::debug!(%error, "setting up a connection failed");
            metrics.tls_failed();
        }
    }
}

impl ConnectionGuard {
    fn new(counts: [Arc<AtomicUsize>; 3], counted: OpenConnection, alive: mpsc::Sender<()>) -> ConnectionGuard {
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        ConnectionGuard { counts, _counted: counted, _alive: alive }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_its_time() {
        let busy = BusyTimes::default();
        assert!(busy.read().is_empty());
        let workers = Workers::start(2, &busy).unwrap();
        assert_eq!(busy.read().len(), 2);
        workers.stop();
    }

    #[test]
    fn the_time_of_a_worker_grows_with_its_work() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let busy = BusyTimes::default();
        busy.add(runtime.metrics());
        let is_seen = runtime.block_on(async {
            for _ in 0..1_000_000 {
                let work =
                    tokio::spawn(async { std::hint::black_box((0..10_000_u64).fold(0, |sum, next| sum ^ next)) });
                work.await.unwrap();
                if busy.read()[0] > Duration::from_millis(5) {
                    return true;
                }
            }
            false
        });
        assert!(is_seen);
    }
}
