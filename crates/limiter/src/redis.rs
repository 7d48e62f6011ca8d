//! Counters in Redis, for services that share their limits: guarded, with refusals remembered, and tended.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Claim, Settlement, Source};
use tollgate_store::redis::RedisStore;
use tollgate_store::{GuardConfig, GuardStatus, Guarded, Remembered, Store, Tending};

pub use tollgate_store::redis::{
    Address, AddressError, ClientCert, Password, RedisConfig, RedisConfigError, RedisStats,
};

/// Counters that all services with this Redis share, ready to be given to a [`Limiter`](crate::Limiter).
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate::redis::RedisCounters;
/// use tollgate::{Limiter, LoadOptions, Ruleset};
///
/// let counters = RedisCounters::open("redis://127.0.0.1:6379")?;
/// counters.first_answer(Duration::from_secs(1)).await; // a Redis that is away is no reason not to start
/// let (rules, _warnings) = Ruleset::load(&["rules.yaml"], &LoadOptions::default(), 1).map_err(|_| "bad rules")?;
/// let limiter = Limiter::new(rules, counters);
/// # let _ = limiter;
/// # Ok(())
/// # }
/// ```
///
/// **Who tends the connections:** a thread of their own, named `store`, which this starts and which ends when this is dropped. It
/// connects, sends what checks wait for, finds Redis again when it was away, and tells it later what was counted meanwhile. So the
/// application has nothing to spawn, and what holds up its own runtime does not make Redis look slow. Checks may come from any
/// runtime of tokio's whose time is enabled.
///
/// **When Redis fails,** limits follow the policies of their rules: nothing here is an error. [`status`](Self::status) says how it is.
#[derive(Debug)]
pub struct RedisCounters {
    store: Remembered<Arc<Guarded<RedisStore>>>,
    /// Ends with this.
    _tending: Tending,
}

/// Why there are no counters in Redis.
#[derive(Debug)]
pub enum OpenError {
    /// The address is none.
    Address(AddressError),
    /// A setting can't be used.
    Config(RedisConfigError),
    /// There is no thread to be had.
    Thread(io::Error),
}

impl RedisCounters {
    /// Counters in the Redis, cluster or group behind sentinels at this address, with the defaults: see [`Address`].
    ///
    /// # Errors
    /// If the address is none. A Redis that is away is no error.
    pub fn open(address: &str) -> Result<RedisCounters, OpenError> {
        let address = address.parse().map_err(OpenError::Address)?;
        RedisCounters::new(RedisConfig::new(address), GuardConfig::default())
    }

    /// The same, with everything that can be said of it.
    ///
    /// The default deadline for a check is 8 ms, since gateways wait no longer. A service that rather waits than decides without
    /// Redis says so in [`GuardConfig::deadline`].
    ///
    /// # Errors
    /// If a setting can't be used. A Redis that is away is no error.
    pub fn new(config: RedisConfig, guard: GuardConfig) -> Result<RedisCounters, OpenError> {
        let redis = config.build().map_err(OpenError::Config)?;
        let guarded = Arc::new(Guarded::new(redis, guard));
        let tending = Tending::start(guarded.clone()).map_err(OpenError::Thread)?;
        Ok(RedisCounters { store: Remembered::new(guarded), _tending: tending })
    }

    /// Waits until Redis answers, but not for longer than this; whether it does. Requests that are decided before follow the
    /// policies of their rules.
    pub async fn first_answer(&self, within: Duration) -> bool {
        self.store.inner().inner().first_answer(within).await
    }

    /// How Redis is, and what passed without it.
    pub fn status(&self) -> GuardStatus {
        self.store.inner().status()
    }

    /// What was sent to Redis.
    pub fn stats(&self) -> RedisStats {
        self.store.inner().inner().stats()
    }
}

impl Store for RedisCounters {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        self.store.settle_into(claim, settlement)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Address(error) => error.fmt(f),
            OpenError::Config(error) => error.fmt(f),
            OpenError::Thread(error) => write!(f, "no thread for Redis: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}
