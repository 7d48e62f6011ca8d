//! The connections to one server.
//!
//! Each worker has its own stack of unused connections, last in, first out, because a connection is driven by the worker
//! that made it. A worker without one uses another worker's only if no more connections may be made; one of HTTP/2 serves
//! requests of several workers then. A worker makes one connection of HTTP/2 at a time, for all requests that need one.

use std::cell::Cell;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::sync::Notify;

use super::connect::{self, ConnectError, Connected};
use super::http1::Http1Connection;
use super::http2::Multiplexed;
use super::sender::{Lease, Sender};
use super::server::{UpstreamServer, now};
use super::{Upstream, other};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ConnectionConfig, Timeouts, UpstreamProtocol};

/// The connections to a server.
pub(super) struct ConnectionPool {
    workers: Box<[Mutex<WorkerPool>]>,
    config: ConnectionConfig,
    open: Arc<AtomicUsize>,
    /// The requests that wait for a connection.
    waiting: AtomicUsize,
    freed: Arc<Notify>,
    /// Whether the server is known to speak HTTP/2.
    is_multiplexed: AtomicBool,
    /// Wakes the requests that wait for a connection of HTTP/2 that is being made.
    made: Notify,
}

/// The connections of one worker.
#[derive(Default)]
struct WorkerPool {
    /// HTTP/1.1, unused, the one used last at the end.
    unused: Vec<Unused>,
    /// HTTP/2.
    shared: Vec<Shared>,
    /// Whether a connection of HTTP/2 is being made.
    is_making: bool,
}

struct Unused {
    connection: Http1Connection,
    /// In microseconds.
    since: u64,
}

struct Shared {
    sender: http2::SendRequest<ForwardedBody>,
    multiplexed: Arc<Multiplexed>,
    born: u64,
}

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
            is_multiplexed: AtomicBool::new(false),
            made: Notify::new(),
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether requests share connections, as far as is known.
    fn is_shared(&self, upstream: &Upstream) -> bool {
        upstream.config.protocol == UpstreamProtocol::Http2 || self.is_multiplexed.load(Ordering::Relaxed)
    }

    /// An unused connection of a worker.
    fn take_unused(&self, worker: usize) -> Option<Unused> {
        let mut pool = lock(&self.workers[worker]);
        let (now, idle, age) = (now(), micros(self.config.idle), micros(self.config.age));
        let is_usable =
            |one: &Unused| now.saturating_sub(one.since) < idle && now.saturating_sub(one.connection.born) < age;
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

    /// A stream of a connection that was made at this moment or later.
    fn take_stream(&self, server: &Arc<UpstreamServer>, worker: usize, since: u64) -> Option<Lease> {
        let mut pool = lock(&self.workers[worker]);
        let now = now();
        pool.shared.retain(|one| self.may_share(one, now));
        pool.shared.iter().filter(|one| one.born >= since).find_map(|one| {
            let stream = one.multiplexed.open()?;
            let sender = Sender::Http2(one.sender.clone(), stream);
            Some(Lease { server: server.clone(), sender, is_reused: true })
        })
    }

    /// Whether a connection of HTTP/2 gets further requests.
    fn may_share(&self, one: &Shared, now: u64) -> bool {
        let unused = one.multiplexed.unused_since().map_or(0, |since| now.saturating_sub(since));
        !one.sender.is_closed()
            && now.saturating_sub(one.born) < micros(self.config.age)
            && unused < micros(self.config.idle)
    }

    fn try_open(&self) -> Option<CountedConnection> {
        let most = self.config.most;
        let grown = |open: usize| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).ok()?;
        Some(CountedConnection { open: self.open.clone(), freed: self.freed.clone() })
    }

    /// A connection whose response has been read.
    pub(super) fn put_back(&self, connection: Http1Connection) {
        lock(&self.workers[worker()]).unused.push(Unused { connection, since: now() });
        self.freed.notify_one();
    }

    /// Closes connections that were not used for too long, or that the server has closed.
    pub(super) fn close_idle(&self) {
        let (now, idle) = (now(), micros(self.config.idle));
        for worker in &self.workers {
            let mut pool = lock(worker);
            pool.unused.retain_mut(|one| now.saturating_sub(one.since) < idle && one.connection.is_alive());
            pool.shared.retain(|one| self.may_share(one, now));
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
    if pool.is_shared(upstream) {
        // One that has just been closed must not be used again.
        let since = if reuse == Reuse::Never { now() } else { 0 };
        return match pool.take_stream(server, worker(), since) {
            Some(lease) => Ok(lease),
            None => Box::pin(share(upstream, server, timeouts, since)).await,
        };
    }
    if reuse != Reuse::Never
        && let Some(lease) = lease_unused(server, worker(), reuse)
    {
        return Ok(lease);
    }
    // Both are rare. Boxed, so that the future of a request stays small.
    Box::pin(make_or_wait(upstream, server, timeouts, 0)).await
}

async fn make_or_wait(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    since: u64,
) -> Result<Lease, AcquireError> {
    match server.pool.try_open() {
        Some(open) => make(upstream, server, timeouts, open).await,
        None => wait(upstream, server, timeouts, since).await,
    }
}

/// A stream of a connection of HTTP/2 that this worker makes. Of many requests at the same time, one makes it.
async fn share(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    since: u64,
) -> Result<Lease, AcquireError> {
    let pool = &server.pool;
    // As long as whoever makes it may need: it connects, secures the connection, and exchanges settings.
    let mut late = pin!(tokio::time::sleep(timeouts.connect * 2 + timeouts.tls));
    loop {
        let mut made = pin!(pool.made.notified());
        // Before it looks, so that one that is made meanwhile is not missed.
        made.as_mut().enable();
        if let Some(lease) = pool.take_stream(server, worker(), since) {
            return Ok(lease);
        }
        // The server may have selected HTTP/1.1 meanwhile.
        if !pool.is_shared(upstream) {
            return make_or_wait(upstream, server, timeouts, since).await;
        }
        if let Some(making) = Making::begin(pool) {
            let Some(open) = pool.try_open() else {
                drop(making);
                return wait(upstream, server, timeouts, since).await;
            };
            return make(upstream, server, timeouts, open).await;
        }
        let _waiting = WaitingRequest::begin(pool).ok_or(AcquireError::Full)?;
        tokio::select! {
            () = made => {}
            () = late.as_mut() => {
                let late = ConnectError::TimedOut(other("no connection was made in time"));
                return Err(AcquireError::Connect(late));
            }
        }
    }
}

/// A connection of HTTP/2 that is being made for a worker. The others wait until it is, or can't be.
struct Making<'p> {
    pool: &'p ConnectionPool,
    worker: usize,
}

impl<'p> Making<'p> {
    fn begin(pool: &'p ConnectionPool) -> Option<Making<'p>> {
        let worker = worker();
        let was_making = std::mem::replace(&mut lock(&pool.workers[worker]).is_making, true);
        (!was_making).then(|| Making { pool, worker })
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.pool.workers[self.worker]).is_making = false;
        self.pool.made.notify_waiters();
    }
}

/// An unused connection of a worker. If the server has closed it, a request that can't be repeated must not be sent there. One
/// that can be repeated is sent at once on a connection that has just been used.
fn lease_unused(server: &Arc<UpstreamServer>, worker: usize, reuse: Reuse) -> Option<Lease> {
    loop {
        let Unused { mut connection, since } = server.pool.take_unused(worker)?;
        let is_recent = || now().saturating_sub(since) <= RECENT;
        if (reuse == Reuse::Repeatable && is_recent() && connection.seems_alive()) || connection.is_alive() {
            return Some(Lease { server: server.clone(), sender: Sender::Http1(connection), is_reused: true });
        }
    }
}

/// Makes a connection. One of HTTP/2 is driven by a task of this worker.
async fn make(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    open: CountedConnection,
) -> Result<Lease, AcquireError> {
    let connected = connect::connect(upstream, server.address(), timeouts).await.map_err(AcquireError::Connect)?;
    let born = now();
    let sender = match connected {
        Connected::Http1(stream) => {
            server.pool.is_multiplexed.store(false, Ordering::Relaxed);
            Sender::Http1(Http1Connection::new(stream, born, open))
        }
        Connected::Http2(sender, driver, observed) => {
            server.pool.is_multiplexed.store(true, Ordering::Relaxed);
            tokio::spawn(async move {
                let _open = open;
                let _ = driver.await;
            });
            let multiplexed = Multiplexed::new(observed, server.pool.freed.clone());
            let stream = multiplexed.open().ok_or(AcquireError::Full)?;
            let shared = Shared { sender: sender.clone(), multiplexed, born };
            lock(&server.pool.workers[worker()]).shared.push(shared);
            // It has room for many.
            server.pool.freed.notify_waiters();
            Sender::Http2(sender, stream)
        }
    };
    Ok(Lease { server: server.clone(), sender, is_reused: false })
}

/// Waits for a connection of any worker.
async fn wait(
    upstream: &Upstream,
    server: &Arc<UpstreamServer>,
    timeouts: &Timeouts,
    since: u64,
) -> Result<Lease, AcquireError> {
    let pool = &server.pool;
    let _waiting = WaitingRequest::begin(pool).ok_or(AcquireError::Full)?;
    let any = async {
        loop {
            let open = {
                let mut freed = pin!(pool.freed.notified());
                // Before it looks, so that nothing that becomes free meanwhile is missed.
                freed.as_mut().enable();
                let free = |worker| {
                    lease_unused(server, worker, Reuse::Careful).or_else(|| pool.take_stream(server, worker, since))
                };
                if let Some(lease) = (0..STACKS).find_map(free) {
                    return Ok(lease);
                }
                let Some(open) = pool.try_open() else {
                    freed.await;
                    continue;
                };
                open
            };
            return make(upstream, server, timeouts, open).await;
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

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Full => f.write_str("too many requests wait for a connection"),
            AcquireError::Connect(error) => write!(f, "{error}"),
        }
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
