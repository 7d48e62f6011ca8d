//! The complete store of a fleet: Redis, guarded, with a deny cache, leases and sums, driven by its own thread.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tollgate_core::{Claim, Key, RegionId, Settlement, Source};
use tollgate_store::leased::LeaseStep;
use tollgate_store::sharded::{Failure, TransportStats};
use tollgate_store::summed::{SplitClaim, SummedStep};
use tollgate_store::{
    AgreeFuture, BulletinEntry, BulletinFuture, DebitConfig, DebitOutbox, DebitStatus, DenyCache, GuardConfig,
    GuardStatus, Guarded, InRegion, LeaseConfig, LeaseStatus, Leased, Level, OtherRegion, PurgedLeases, ReadyFuture,
    Regions, SavedGuard, SettleFuture, SharedStatus, SharedStore, Store, Summed, SummedStatus, SystemClock, join_all,
};

use crate::adjustments;
use crate::driver::StoreDriver;
use crate::{AddressError, LeasedRedis, RedisConfig, RedisConfigError, RedisRegions, RedisStore, SummedRedis};

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
    store: Arc<SummedRedis>,
    /// The index in [`LEVELS`] of the [`Level`] of the last refresh.
    level: AtomicU8,
    /// Stops when this is dropped.
    _driver: StoreDriver,
}

const LEVELS: [Level; 4] = [Level::Normal, Level::Degraded, Level::LocalOnly, Level::Open];

/// Another region.
#[derive(Clone, Debug)]
pub struct RedisRegion {
    /// Its name.
    pub name: String,
    /// Its Redis, as this region reaches it. Its processes agree on the form of private values by themselves, so it must
    /// not share [`RedisConfig::key_privacy`] with another region.
    pub config: RedisConfig,
    /// How long a check waits for it.
    pub deadline: Duration,
}

impl RedisRegion {
    /// The default of [`deadline`](Self::deadline).
    pub const DEADLINE: Duration = Duration::from_millis(50);

    /// The region of this name, with default settings.
    pub fn new(name: &str, config: RedisConfig) -> RedisRegion {
        RedisRegion { name: name.to_owned(), config, deadline: Self::DEADLINE }
    }
}

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
        RedisCounters::in_regions(config, Vec::new(), guard, leases, DebitConfig::default(), saved)
    }

    /// Like [`restored`](Self::restored), with the Redis of each other region, for rules with `region: home` and `region: global`. Rules and
    /// counters number regions by their names: the rules must be loaded with these regions, and those that are not here in
    /// any order.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_regions(
        config: RedisConfig,
        mut others: Vec<RedisRegion>,
        guard: GuardConfig,
        leases: LeaseConfig,
        debits: DebitConfig,
        saved: Option<&SavedGuard>,
    ) -> Result<RedisCounters, OpenError> {
        let redis = config.build().map_err(OpenError::Config)?;
        others.sort_by(|one, other| one.name.cmp(&other.name));
        let others = others.into_iter().map(|RedisRegion { name, config, deadline }| {
            // Otherwise a claim would wait for the end of the round trip before its own.
            let round_trips = RedisConfig::MAX_ROUND_TRIPS;
            let store = RedisConfig { round_trips, ..config }.build().map_err(OpenError::Config)?;
            Ok(OtherRegion { name, store, deadline })
        });
        let regions = Regions::new(redis, others.collect::<Result<Vec<_>, _>>()?);
        let guarded = Arc::new(Guarded::restored(regions, guard, SystemClock::default(), saved));
        let replicas = guarded.replicas();
        let names = (1..).map(RegionId::new).zip(guarded.inner().others()).map(|(id, other)| (id, other.name.clone()));
        let debited = DebitOutbox::new(DenyCache::new(guarded.clone()), guarded.clone(), debits, names.collect());
        let store = Arc::new(Summed::new(Leased::new(debited, leases)));
        store.set_servers(replicas);
        let driver = StoreDriver::start(store.clone()).map_err(OpenError::Thread)?;
        Ok(RedisCounters { store, level: AtomicU8::new(0), _driver: driver })
    }

    /// Waits until the Redis of this region answers, but no longer than the timeout. Returns whether it does. Requests that
    /// are decided before follow the policies of their rules.
    pub async fn wait_until_ready(&self, timeout: Duration) -> bool {
        self.here().wait_until_ready(timeout).await
    }

    /// The state of Redis, and the number of claims that passed without it.
    pub fn status(&self) -> GuardStatus {
        self.guard().status()
    }

    /// The leased keys, of which the busiest are listed.
    pub fn leases(&self, hot_keys: usize) -> LeaseStatus {
        self.leased().status(hot_keys)
    }

    /// The counters that each server counts by itself, with their sums.
    pub fn sums(&self) -> SummedStatus {
        self.store.status()
    }

    fn leased(&self) -> &LeasedRedis {
        self.store.inner()
    }

    /// The debits of each other region.
    pub fn debits(&self) -> Vec<DebitStatus> {
        self.leased().inner().status()
    }

    fn guard(&self) -> &Guarded<RedisRegions> {
        self.leased().inner().inner().inner()
    }

    /// Settles a claim that has no charge that this server counts by itself.
    async fn settle_stored(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let Some(step) = self.begin(claim, settlement) else { return };
        if adjustments::is_adjustment(claim) {
            // Boxed, so that the futures of requests stay small.
            return Box::pin(self.adjust(step, claim, settlement)).await;
        }
        self.finish(step, claim, settlement).await;
    }

    /// Settles a claim of which this server counts a part by itself.
    async fn settle_split(&self, split: Box<SplitClaim<'_, '_>>, settlement: &mut Settlement) {
        let mut answer = Settlement::default();
        self.settle_stored(split.rest(), &mut answer).await;
        (settlement.link, settlement.lowered_to) = (answer.link, answer.lowered_to);
        split.end(&answer, settlement);
    }

    /// The Redis of this region.
    fn here(&self) -> &RedisStore {
        self.guard().inner().here()
    }

    async fn finish(&self, step: LeaseStep<'_, '_>, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.leased().finish(step, claim, settlement).await;
        self.leased().inner().note_link(claim, settlement);
    }

    /// Begins a claim. `None` if it is settled.
    fn begin<'a>(&self, claim: &Claim<'a>, settlement: &mut Settlement) -> Option<LeaseStep<'_, 'a>> {
        let step = self.leased().begin(claim, settlement);
        if step.is_none() {
            // From a lease, perhaps of a limit that is lowered now.
            self.leased().inner().note_link(claim, settlement);
        }
        step
    }

    /// Settles an operator's change, and notifies the other servers of it.
    async fn adjust(&self, step: LeaseStep<'_, '_>, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.finish(step, claim, settlement).await;
        adjustments::note(self.guard().inner(), claim, settlement).await;
    }

    /// The state to restore after a restart: the number of servers, and what is left of the counters. Worth saving when
    /// the process stops, and from time to time while Redis is unavailable.
    pub fn save(&self) -> SavedGuard {
        self.guard().save()
    }

    /// The traffic to the Redis of this region.
    pub fn stats(&self) -> TransportStats {
        self.here().stats()
    }
}

impl Store for RedisCounters {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        match self.store.begin(claim, settlement) {
            SummedStep::Answered => {}
            SummedStep::Whole => self.settle_stored(claim, settlement).await,
            SummedStep::Split(split) => Box::pin(self.settle_split(split, settlement)).await,
        }
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }
}

impl SharedStore for RedisCounters {
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Option<SettleFuture<'a>> {
        match self.store.begin(claim, settlement) {
            SummedStep::Answered => return None,
            SummedStep::Split(split) => return Some(Box::pin(self.settle_split(split, settlement))),
            SummedStep::Whole => {}
        }
        let step = self.begin(claim, settlement)?;
        if adjustments::is_adjustment(claim) {
            return Some(Box::pin(self.adjust(step, claim, settlement)));
        }
        Some(Box::pin(self.finish(step, claim, settlement)))
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }

    fn level(&self) -> Level {
        LEVELS.get(usize::from(self.level.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    fn status(&self) -> SharedStatus {
        SharedStatus {
            guard: self.status(),
            transport: self.stats(),
            leases: self.leases(0),
            debits: self.debits(),
            sums: self.sums(),
        }
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
        self.leased().set_enabled(is_enabled);
    }

    fn purge_leases(&self, is_purged: &dyn Fn(&Key<'_>) -> bool) -> PurgedLeases {
        self.leased().purge(is_purged)
    }

    fn purge_refusals(&self, is_purged: &dyn Fn(&Key<'_>) -> bool) -> usize {
        self.leased().inner().inner().purge(is_purged)
    }

    fn agree_on<'a>(&'a self, name: &'a str, proposal: &'a [u8], timeout: Duration) -> AgreeFuture<'a> {
        let redis = self.here();
        Box::pin(async move {
            // Other agreed values are signs of a fleet. While it is unknown how it names its counters, a process that starts
            // now would take them for those of an earlier version.
            let agreed = tokio::time::timeout(timeout, redis.wait_until_named()).await;
            agreed.map_err(|_| "the form of names is not agreed on yet".to_owned())?;
            redis.agree_on(name, proposal, timeout).await.map_err(|failure| failure.to_string())
        })
    }

    fn publish<'a>(&'a self, bulletin: &'a str, entry: BulletinEntry<'a>, timeout: Duration) -> BulletinFuture<'a, ()> {
        let BulletinEntry { id, text, is_replaced } = entry;
        let publish = move |redis: &'a RedisStore| redis.publish(bulletin, id, text, is_replaced);
        Box::pin(in_all_regions(self.guard().inner(), timeout, publish))
    }

    fn published<'a>(&'a self, bulletin: &'a str, timeout: Duration) -> BulletinFuture<'a, Vec<(String, Vec<u8>)>> {
        Box::pin(in_all_regions(self.guard().inner(), timeout, move |redis: &'a RedisStore| redis.published(bulletin)))
    }
}

/// Calls all regions at the same time. What takes longer has failed.
async fn in_all_regions<'a, T, F: Future<Output = Result<T, Failure>>>(
    regions: &'a RedisRegions,
    timeout: Duration,
    call: impl Fn(&'a RedisStore) -> F,
) -> Vec<InRegion<T>> {
    let names = std::iter::once(None).chain(regions.others().iter().map(|other| Some(other.name.clone())));
    let mut answers: Vec<InRegion<T>> = names.map(|region| InRegion { region, answer: Err(String::new()) }).collect();
    let calls = regions.stores().zip(&mut answers).map(|(store, to)| {
        let called = tokio::time::timeout(timeout, call(store));
        async move {
            let answer = called.await.unwrap_or(Err(Failure::Timeout));
            to.answer = answer.map_err(|failure| failure.to_string());
        }
    });
    join_all(calls).await;
    answers
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
