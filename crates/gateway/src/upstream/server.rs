//! One server of an upstream: whether it may be used, and what it does now.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::pool::ConnectionPool;
use crate::clock;
use crate::model::{ConnectionConfig, ServerAddress};

/// A server.
#[derive(Debug)]
pub(crate) struct UpstreamServer {
    address: ServerAddress,
    pub(super) pool: ConnectionPool,
    in_flight: AtomicUsize,
    /// By health checks. A server is healthy until they say otherwise.
    is_unhealthy: AtomicBool,
    /// Failures of requests in a row.
    failures: AtomicU32,
    /// In microseconds of [`now`]. Zero: not ejected.
    ejected_until: AtomicU64,
}

/// A request that a server has not answered yet.
#[derive(Debug)]
pub(crate) struct RequestInFlight(Arc<UpstreamServer>);

/// A clock that is never set, in microseconds.
pub(super) fn now() -> u64 {
    clock::now().as_micros()
}

/// The same in nanoseconds.
pub(super) fn now_nanos() -> u64 {
    now().saturating_mul(1_000)
}

impl UpstreamServer {
    pub(super) fn new(address: ServerAddress, connections: &ConnectionConfig) -> UpstreamServer {
        UpstreamServer {
            address,
            pool: ConnectionPool::new(connections),
            in_flight: AtomicUsize::new(0),
            is_unhealthy: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.address
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.pool.open()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        !self.is_unhealthy.load(Ordering::Relaxed)
    }

    pub(super) fn set_healthy(&self, is_healthy: bool) {
        self.is_unhealthy.store(!is_healthy, Ordering::Relaxed);
    }

    pub(super) fn is_ejected(&self, now: u64) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > now
    }

    /// The same, now.
    pub(crate) fn is_ejected_now(&self) -> bool {
        self.is_ejected(now())
    }

    pub(super) fn is_usable(&self, now: u64) -> bool {
        self.is_healthy() && !self.is_ejected(now)
    }

    /// The number of failures in a row, with this one.
    pub(super) fn count_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// A request succeeded.
    pub(crate) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Ordering::Relaxed)
    }

    /// Ends an ejection early.
    pub(super) fn use_again(&self) {
        self.ejected_until.store(0, Ordering::Relaxed);
    }

    pub(super) fn eject(&self, now: u64, time: Duration) {
        self.failures.store(0, Ordering::Relaxed);
        let until = now.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.ejected_until.store(until, Ordering::Relaxed);
    }
}

impl RequestInFlight {
    pub(crate) fn begin(server: Arc<UpstreamServer>) -> RequestInFlight {
        server.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestInFlight(server)
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Socket(address) => write!(f, "{address}"),
            ServerAddress::Name { host, port } => write!(f, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
