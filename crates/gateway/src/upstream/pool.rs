//! The connections to one server.
//!
//! Each worker has its own stack of unused connections, last in, first out, because a connection is driven by the worker
//! that made it. A worker without one uses another worker's only if no more connections may be made.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use tokio::sync::Notify;

use super::connect::{self, ConnectError, Connected};
use super::sender::{Lease, Sender};
use super::server::{UpstreamServer, now};
use super::{Upstream, other};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ConnectionConfig, Timeouts};

/// The connections to a server.
pub(super) struct ConnectionPool {
    workers: Box<[Mutex<WorkerPool>]>,
    config: ConnectionConfig,
    open: Arc<AtomicUsize>,
    /// The requests that wait for a connection.
    waiting: AtomicUsize,
    freed: Arc<Notify>,
}

/// The connections of one worker.
#[derive(Default)]
struct WorkerPool {
    /// HTTP/1.1, unused, the one used last at the end.
    unused: Vec<Unused>,
    /// HTTP/2.
    shared: Vec<Shared>,
}

struct Unused {
    sender: http1::SendRequest<ForwardedBody>,
    /// In microseconds.
    born: u64,
    since: u64,
}

struct Shared {
    sender: http2::SendRequest<ForwardedBody>,
    multiplexed: Arc<Multiplexed>,
    born: u64,
}

/// The requests of an HTTP/2 connection.
#[derive(Debug, Default)]
struct Multiplexed(AtomicUsize);

/// A request on an HTTP/2 connection.
pub(super) struct OpenStream(Arc<Multiplexed>);

/// Counts a connection as open.
pub(super) struct CountedConnection {
    open: Arc<AtomicUsize>,
    freed: Arc<Notify>,
}

/// Whether a request may use a connection that was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// An unused connection has just failed.
    Never,
    /// The request can't be sent again if the connection is closed in the middle.
    Careful,
    /// It can.
    Repeatable,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum AcquireError {
    /// Too many requests wait for one already.
    Full,
    Connect(ConnectError),
}

/// The number of stacks. Workers beyond it share them.
const STACKS: usize = 64;
/// The most requests at the same time on an HTTP/2 connection. If the server allows fewer, h2 lets the others wait.
const MAX_STREAMS: usize = 100;
/// How long after its last use a connection counts as alive, in microseconds.
const RECENT: u64 = 1_000;

thread_local! {
    /// The number of this worker.
    static WORKER: Cell<Option<usize>> = const { Cell::new(None) };
}

fn worker() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    WORKER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % STACKS;
        WORKER.set(Some(number));
        number
    })
}

impl ConnectionPool {
    pub(super) fn new(config: &ConnectionConfig) -> ConnectionPool {
        ConnectionPool {
            workers: (0..STACKS).map(|_| Mutex::default()).collect(),
            config: config.clone(),
            open: Arc::default(),
            waiting: AtomicUsize::new(0),
            freed: Arc::default(),
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// An unused connection of a worker.
    fn take_unused(&self, worker: usize) -> Option<Unused> {
        let mut pool = lock(&self.workers[worker]);
        let (now, idle, age) = (now(), micros(self.config.idle), micros(self.config.age));
        let is_usable = |one: &Unused| {
            !one.sender.is_closed() && now.saturating_sub(one.since) < idle && now.saturating_sub(one.born) < age
        };
        while let Some(one) = pool.unused.pop() {
            if is_usable(&one) {
                return Some(one);
            }
            // Those below were used before it.
            if now.saturating_sub(one.since) >= idle {
                pool.unused.clear();
            }
        }
        None
    }

    fn take_stream(&self, server: &Arc<UpstreamServer>) -> Option<Lease> {
        let mut pool = lock(&self.workers[worker()]);
        let (now, age) = (now(), micros(self.config.age));
        pool.shared.retain(|one| !one.sender.is_closed() && now.saturating_sub(one.born) < age);
        pool.shared.iter().find_map(|one| {
            let stream = one.multiplexed.open()?;
            let sender = Sender::Http2(one.sender.clone(), stream);
            Some(Lease { server: server.clone(), sender, born: one.born })
        })
    }

    fn try_open(&self) -> Option<CountedConnection> {
        let most = self.config.most;
        let grown = |open: usize| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).ok()?;
        Some(CountedConnection { open: self.open.clone(), freed: self.freed.clone() })
    }

    /// A connection whose response has been read.
    pub(super) fn put_back(&self, sender: http1::SendRequest<ForwardedBody>, born: u64) {
        if sender.is_closed() {
            return;
        }
        lock(&self.workers[worker()]).unused.push(Unused { sender, born, since: now() });
        self.freed.notify_one();
    }

    /// Closes connections that were not used for too long.
    pub(super) fn close_idle(&self) {
        let (now, idle) = (now(), micros(self.config.idle));
        for worker in &self.workers {
            let mut pool = lock(worker);
            pool.unused.retain(|one| !one.sender.is_closed() && now.saturating_sub(one.since) < idle);
            pool.shared.retain(|one| !one.sender.is_closed());
        }
    }
}

/// A connection to a server.
pub(super) async fn acquire(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    reuse: Reuse,
) -> Result<Lease, AcquireError> {
    let pool = &server.pool;
    if reuse != Reuse::Never
        && let Some(lease) = reused(server, reuse).await
    {
        return Ok(lease);
    }
    // Both are rare. Boxed, so that the future of a request stays small.
    if let Some(open) = pool.try_open() {
        return Box::pin(make(upstream, server, timeouts, open)).await;
    }
    Box::pin(wait(upstream, server, timeouts)).await
}

async fn reused(server: &Arc<UpstreamServer>, reuse: Reuse) -> Option<Lease> {
    if let Some(lease) = server.pool.take_stream(server) {
        return Some(lease);
    }
    lease(server, server.pool.take_unused(worker())?, reuse).await
}

/// Waits until hyper has finished with the previous response, which it nearly always has.
///
/// The task of the connection gets a turn before that: if the server has closed it, a request that can't be repeated must
/// not be sent there. One that can be repeated is sent at once on a connection that has just been used.
async fn lease(server: &Arc<UpstreamServer>, mut unused: Unused, reuse: Reuse) -> Option<Lease> {
    if reuse != Reuse::Repeatable || now().saturating_sub(unused.since) > RECENT {
        tokio::task::yield_now().await;
    }
    if unused.sender.is_closed() {
        return None;
    }
    if !unused.sender.is_ready() && unused.sender.ready().await.is_err() {
        return None;
    }
    let sender = Sender::Http1(unused.sender);
    Some(Lease { server: server.clone(), sender, born: unused.born })
}

/// Makes a connection. It is driven by a task of this worker.
async fn make(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    open: CountedConnection,
) -> Result<Lease, AcquireError> {
    let connected = connect::connect(upstream, server.address(), timeouts).await.map_err(AcquireError::Connect)?;
    let born = now();
    let sender = match connected {
        Connected::Http1(sender, connection) => {
            tokio::spawn(async move {
                let _open = open;
                let _ = connection.with_upgrades().await;
            });
            Sender::Http1(sender)
        }
        Connected::Http2(sender, connection) => {
            tokio::spawn(async move {
                let _open = open;
                let _ = connection.await;
            });
            let multiplexed = Arc::new(Multiplexed::default());
            let stream = multiplexed.open().ok_or(AcquireError::Full)?;
            let shared = Shared { sender: sender.clone(), multiplexed, born };
            lock(&server.pool.workers[worker()]).shared.push(shared);
            Sender::Http2(sender, stream)
        }
    };
    Ok(Lease { server: server.clone(), sender, born })
}

/// Waits for a connection of any worker.
async fn wait(upstream: &Upstream, server: &Arc<UpstreamServer>, timeouts: &Timeouts) -> Result<Lease, AcquireError> {
    let pool = &server.pool;
    let _waiting = WaitingRequest::begin(pool).ok_or(AcquireError::Full)?;
    let any = async {
        loop {
            let freed = pool.freed.notified();
            for worker in 0..STACKS {
                if let Some(unused) = pool.take_unused(worker)
                    && let Some(lease) = lease(server, unused, Reuse::Careful).await
                {
                    return Ok(lease);
                }
            }
            if let Some(lease) = pool.take_stream(server) {
                return Ok(lease);
            }
            if let Some(open) = pool.try_open() {
                return make(upstream, server, timeouts, open).await;
            }
            freed.await;
        }
    };
    let timed_out = || AcquireError::Connect(ConnectError::TimedOut(other("no connection became free")));
    tokio::time::timeout(timeouts.connect, any).await.unwrap_or_else(|_| Err(timed_out()))
}

/// A request that waits for a connection.
struct WaitingRequest<'p>(&'p ConnectionPool);

impl<'p> WaitingRequest<'p> {
    fn begin(pool: &'p ConnectionPool) -> Option<WaitingRequest<'p>> {
        let waiting = WaitingRequest(pool);
        let before = pool.waiting.fetch_add(1, Ordering::Relaxed);
        (before < pool.config.waiting).then_some(waiting)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Multiplexed {
    fn open(self: &Arc<Self>) -> Option<OpenStream> {
        let stream = OpenStream(self.clone());
        (self.0.fetch_add(1, Ordering::Relaxed) < MAX_STREAMS).then_some(stream)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").field("open", &self.open()).finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn lock(pool: &Mutex<WorkerPool>) -> MutexGuard<'_, WorkerPool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}
