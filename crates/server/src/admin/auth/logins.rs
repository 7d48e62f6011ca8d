//! Failed logins, limited by the limiter itself.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tollgate::{Clock, Limiter, MemoryConfig, MemoryStore, Ruleset, Span, Throttle, Throttler, Timestamp, now};

use crate::control::Control;

/// Counts those who showed a token that nobody knows.
pub(super) struct Logins {
    throttler: Mutex<Throttler<MemoryStore<ControlClock>>>,
    failed: Counter,
}

/// The control plane's clock, so that there is one.
struct ControlClock(Arc<Control>);

/// Failures in a minute, of one address, after which it has to wait.
const MOST_FAILURES: u64 = 10;
const PERIOD_SECS: u64 = 60;
const FAILURES: Throttle =
    Throttle { count: MOST_FAILURES, period: Span::from_secs(PERIOD_SECS), burst: MOST_FAILURES };
/// When the next one may be tried, at the latest.
pub(super) const WAIT: Duration = Duration::from_secs(PERIOD_SECS / MOST_FAILURES);
/// The most addresses that are remembered.
const MOST_ADDRESSES: usize = 10_000;
/// Who has a network of IPv6 has all addresses of it: this many bytes name one.
const NETWORK: usize = 8;

impl Clock for ControlClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl Logins {
    /// # Errors
    /// If no rules at all can't be compiled: they can.
    pub(super) fn new(control: Arc<Control>, failed: Counter) -> Result<Logins, String> {
        let store =
            MemoryConfig { max_keys: MOST_ADDRESSES, ..MemoryConfig::default() }.build_with(ControlClock(control));
        let rules = Ruleset::compile(Vec::new(), 0).map_err(|_| "no limit for failed logins".to_owned())?;
        let limiter = Arc::new(Limiter::new(rules, store));
        Ok(Logins { throttler: Mutex::new(Throttler::new(limiter, "admin-logins")), failed })
    }

    /// Whether somebody at this address may try. `None` stands for a Unix socket.
    pub(super) fn may_try(&self, address: Option<IpAddr>) -> bool {
        self.take(address, 0) > 0
    }

    /// One more failed.
    pub(super) fn failed(&self, address: Option<IpAddr>) {
        self.failed.inc();
        self.take(address, 1);
    }

    /// What is left.
    fn take(&self, address: Option<IpAddr>, units: u64) -> u64 {
        let (v4, v6);
        let key = match address {
            None => &b"unix"[..],
            Some(IpAddr::V4(address)) => {
                v4 = address.octets();
                &v4
            }
            Some(IpAddr::V6(address)) => {
                v6 = address.octets();
                v6.split_at(NETWORK).0
            }
        };
        let mut throttler = self.throttler.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = now(throttler.take(key, &FAILURES, units));
        // Memory answers at once, and the limit is one that can be counted.
        reading.and_then(Result::ok).map_or(0, |reading| reading.remaining)
    }
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}
