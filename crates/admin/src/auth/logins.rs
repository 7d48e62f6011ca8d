//! Failed logins, limited by the limiter itself.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tollgate::{
    Clock, Limiter, MemoryConfig, MemoryStore, Ruleset, Span, Steady, Throttle, Throttler, Timestamp, poll_once,
};

use crate::store_of_record::ControlPlane;

/// Counts attempts with unknown tokens, and limits the responses to them.
pub(super) struct Logins {
    throttler: Mutex<Throttler<MemoryStore<ControlClock>>>,
    failed: Counter,
}

/// The clock of the control plane.
struct ControlClock(Arc<ControlPlane>);

/// Failures per minute and address before it has to wait.
const MAX_FAILURES: u64 = 10;
const PERIOD_SECS: u64 = 60;
const FAILURES: Throttle = Throttle { count: MAX_FAILURES, period: Span::from_secs(PERIOD_SECS), burst: MAX_FAILURES };
/// The longest wait until the next attempt.
pub(super) const WAIT: Duration = Duration::from_secs(PERIOD_SECS / MAX_FAILURES);
/// Addresses that are tracked.
const MAX_ADDRESSES: usize = 10_000;
/// IPv6 clients own whole networks: the first 8 bytes count as one address.
const IPV6_NETWORK_BYTES: usize = 8;

impl Clock for ControlClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn steady(&self) -> Steady {
        Steady::from_micros(self.now().as_micros())
    }
}

impl Logins {
    /// # Errors
    /// If an empty ruleset can't be compiled, which does not happen.
    pub(super) fn new(control: Arc<ControlPlane>, failed: Counter) -> Result<Logins, String> {
        let store =
            MemoryConfig { max_keys: MAX_ADDRESSES, ..MemoryConfig::default() }.build_with(ControlClock(control));
        let rules = Ruleset::compile(Vec::new(), 0).map_err(|_| "no limit for failed logins".to_owned())?;
        let limiter = Arc::new(Limiter::new(rules, store));
        Ok(Logins { throttler: Mutex::new(Throttler::new(limiter, "admin-logins")), failed })
    }

    /// Records a failed attempt. Returns whether the address has had fewer than it may. `None` is a Unix socket.
    pub(super) fn record_failure(&self, address: Option<IpAddr>) -> bool {
        self.failed.inc();
        self.take(address)
    }

    /// Takes a unit, if there is one.
    fn take(&self, address: Option<IpAddr>) -> bool {
        let (v4, v6);
        let key = match address {
            None => &b"unix"[..],
            Some(IpAddr::V4(address)) => {
                v4 = address.octets();
                &v4
            }
            Some(IpAddr::V6(address)) => {
                v6 = address.octets();
                v6.split_at(IPV6_NETWORK_BYTES).0
            }
        };
        let mut throttler = self.throttler.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = poll_once(throttler.take(key, &FAILURES, 1));
        // The memory store answers at once, and the limit is valid.
        reading.and_then(Result::ok).is_some_and(|reading| reading.admits)
    }
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}
