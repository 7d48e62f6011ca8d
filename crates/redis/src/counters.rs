//! The complete store of a fleet: Redis, guarded, with a deny cache and leases, driven by its own thread.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tollgate_core::{Claim, Key, Settlement, Source};
use tollgate_store::leased::LeaseStep;
use tollgate_store::sharded::{Failure, TransportStats};
use tollgate_store::{
    AgreeFuture, BulletinEntry, BulletinFuture, DenyCache, GuardConfig, GuardStatus, Guarded, LeaseConfig, LeaseStatus,
    Leased, Level, PurgedLeases, ReadyFuture, SavedGuard, SettleFuture, SharedStatus, SharedStore, Store, SystemClock,
};

use crate::adjustments;
use crate::driver::StoreDriver;
use crate::{AddressError, LeasedRedis, RedisConfig, RedisConfigError, RedisStore};

/// Counters that all services with this Redis share, for use in a `Limiter`.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate_redis::RedisCounters;
///
/// let counters = RedisCounters::open("redis://127.0.0.1:6379")?;
/// counters.wait_until_ready(Duration::from_secs(1)).await; // start even if Redis is unavailable
/// # Ok(())
/// # }
/// ```
///
/// **Connections:** a thread named `store`, which this starts and which ends when this is dropped, connects to Redis,
/// sends claims, reconnects after an outage, and sends what was counted meanwhile. The application has nothing to
/// spawn, and a busy application runtime does not make Redis look slow. Checks may come from any tokio runtime with
/// time enabled.
///
/// **When Redis fails,** limits follow the policies of their rules; there are no errors. [`status`](Self::status)
/// shows the state of Redis.
#[derive(Debug)]
pub struct RedisCounters {
    store: Arc<LeasedRedis>,
    /// The index in [`LEVELS`] of the [`Level`] of the last refresh.
    level: AtomicU8,
    /// Stops when this is dropped.
    _driver: StoreDriver,
}

const LEVELS: [Level; 4] = [Level::Normal, Level::Degraded, Level::LocalOnly, Level::Open];

/// Why the counters could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The address is invalid.
    Address(AddressError),
    /// A setting is invalid.
    Config(RedisConfigError),
    /// The thread could not be started.
    Thread(io::Error),
}

impl RedisCounters {
    /// Counters in the Redis, cluster or group behind sentinels at this address, with default settings. See
    /// [`Address`](crate::Address).
    ///
    /// # Errors
    /// If the address is invalid. An unavailable Redis is not an error.
    pub fn open(address: &str) -> Result<RedisCounters, OpenError> {
        let address = address.parse().map_err(OpenError::Address)?;
        RedisCounters::new(RedisConfig::new(address), GuardConfig::default())
    }

    /// Like [`open`](Self::open), with all settings.
    ///
    /// The default deadline of a check is 8 ms, because gateways do not wait longer. A service that prefers to wait
    /// over deciding without Redis sets [`GuardConfig::deadline`].
    ///
    /// # Errors
    /// If a setting is invalid. An unavailable Redis is not an error.
    pub fn new(config: RedisConfig, guard: GuardConfig) -> Result<RedisCounters, OpenError> {
        RedisCounters::restored(config, guard, LeaseConfig::default(), None)
    }

    /// Like [`new`](Self::new), with the settings of leases, and with the state that was [saved](Self::save) before a
    /// restart. While Redis is unavailable, limits then stay as they were, instead of starting afresh with each restart.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn restored(
        config: RedisConfig,
        guard: GuardConfig,
        leases: LeaseConfig,
        saved: Option<&SavedGuard>,
    ) -> Result<RedisCounters, OpenError> {
        let redis = config.build().map_err(OpenError::Config)?;
        let guarded = Arc::new(Guarded::restored(redis, guard, SystemClock::default(), saved));
        let store = Arc::new(Leased::new(DenyCache::new(guarded), leases));
        let driver = StoreDriver::start(store.clone()).map_err(OpenError::Thread)?;
        Ok(RedisCounters { store, level: AtomicU8::new(0), _driver: driver })
    }

    /// Waits until Redis answers, but no longer than the timeout. Returns whether it does. Requests that are decided
    /// before follow the policies of their rules.
    pub async fn wait_until_ready(&self, timeout: Duration) -> bool {
        self.guard().inner().wait_until_ready(timeout).await
    }

    /// The state of Redis, and the number of claims that passed without it.
    pub fn status(&self) -> GuardStatus {
        self.guard().status()
    }

    /// The leased keys, of which the busiest are listed.
    pub fn leases(&self, hot_keys: usize) -> LeaseStatus {
        self.store.status(hot_keys)
    }

    fn guard(&self) -> &Guarded<RedisStore> {
        self.store.inner().inner()
    }

    /// Settles an operator's change, and notifies the other servers of it.
    async fn adjust(&self, step: LeaseStep<'_, '_>, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.store.finish(step, claim, settlement).await;
        self.guard().inner().note_adjustments(claim, settlement).await;
    }

    /// The state to restore after a restart: the number of servers, and what is left of the counters. Worth saving when
    /// the process stops, and from time to time while Redis is unavailable.
    pub fn save(&self) -> SavedGuard {
        self.guard().save()
    }

    /// The traffic to Redis.
    pub fn stats(&self) -> TransportStats {
        self.guard().inner().stats()
    }
}

impl Store for RedisCounters {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let Some(step) = self.store.begin(claim, settlement) else { return };
        if adjustments::is_adjustment(claim) {
            // Boxed, so that the futures of requests stay small.
            return Box::pin(self.adjust(step, claim, settlement)).await;
        }
        self.store.finish(step, claim, settlement).await;
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }
}

impl SharedStore for RedisCounters {
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Option<SettleFuture<'a>> {
        let step = self.store.begin(claim, settlement)?;
        if adjustments::is_adjustment(claim) {
            return Some(Box::pin(self.adjust(step, claim, settlement)));
        }
        Some(Box::pin(self.store.finish(step, claim, settlement)))
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }

    fn level(&self) -> Level {
        LEVELS.get(usize::from(self.level.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    fn status(&self) -> SharedStatus {
        SharedStatus { guard: self.status(), transport: self.stats(), leases: self.leases(0) }
    }

    fn refresh(&self) -> SharedStatus {
        let status = SharedStore::status(self);
        let level = LEVELS.iter().position(|level| *level == status.guard.level).unwrap_or(0);
        self.level.store(level as u8, Ordering::Relaxed);
        status
    }

    fn wait_until_ready(&self, timeout: Duration) -> ReadyFuture<'_> {
        Box::pin(RedisCounters::wait_until_ready(self, timeout))
    }

    fn save(&self) -> SavedGuard {
        RedisCounters::save(self)
    }

    fn leases(&self, hot_keys: usize) -> LeaseStatus {
        RedisCounters::leases(self, hot_keys)
    }

    fn set_leases(&self, is_enabled: bool) {
        self.store.set_enabled(is_enabled);
    }

    fn purge_leases(&self, is_purged: &dyn Fn(&Key<'_>) -> bool) -> PurgedLeases {
        self.store.purge(is_purged)
    }

    fn purge_refusals(&self, is_purged: &dyn Fn(&Key<'_>) -> bool) -> usize {
        self.store.inner().purge(is_purged)
    }

    fn agree_on<'a>(&'a self, name: &'a str, proposal: &'a [u8], timeout: Duration) -> AgreeFuture<'a> {
        let redis = self.guard().inner();
        Box::pin(async move {
            // Other agreed values are signs of a fleet. While it is unknown how it names its counters, a process that starts
            // now would take them for those of an earlier version.
            let agreed = tokio::time::timeout(timeout, redis.wait_until_named()).await;
            agreed.map_err(|_| "the form of names is not agreed on yet".to_owned())?;
            redis.agree_on(name, proposal, timeout).await.map_err(|failure| failure.to_string())
        })
    }

    fn publish<'a>(&'a self, bulletin: &'a str, entry: BulletinEntry<'a>, timeout: Duration) -> BulletinFuture<'a, ()> {
        let redis = self.guard().inner();
        let BulletinEntry { id, text, is_replaced } = entry;
        Box::pin(within(timeout, redis.publish(bulletin, id, text, is_replaced)))
    }

    fn published<'a>(&'a self, bulletin: &'a str, timeout: Duration) -> BulletinFuture<'a, Vec<(String, Vec<u8>)>> {
        Box::pin(within(timeout, self.guard().inner().published(bulletin)))
    }
}

/// What takes longer has failed.
async fn within<T>(timeout: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, String> {
    let result = tokio::time::timeout(timeout, call).await.unwrap_or(Err(Failure::Timeout));
    result.map_err(|failure| failure.to_string())
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
