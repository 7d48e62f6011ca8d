//! Counters in Redis, Redis Cluster, or a primary behind sentinels.
//!
//! ```text
//! settle_at ─ Packet (codec) ─▶ ClaimSender ─ the node of the slot (topology) ─▶ Lane ─ the next round trip (lane_task) ─▶ lua
//! ```
//!
//! A claim is one call of one script, shared with the claims that arrived during the previous round trip. It is sent
//! again only after an answer that proves that it did not run. [`RedisStore::run`] makes and maintains the
//! connections; the owner of the store must run it. Claims may come from any thread and any runtime.

mod adjustments;
mod agreement;
mod batch;
mod bulletin;
mod codec;
mod connect;
mod counters;
mod discover;
mod dispatch;
mod driver;
mod error_reply;
mod lane;
mod lane_task;
mod liveness;
mod moving;
mod names;
#[cfg(feature = "perf")]
pub mod perf;
mod privacy;
mod script;
mod send;
mod spilled;
mod stats;
mod summed;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_core::{Claim, Key, Settlement, Timestamp};

pub use counters::{OpenError, RedisCounters, RedisRegion};
pub use tollgate_redis_address::{Address, AddressError, Password};
pub use tollgate_store::sharded::TransportStats;

use connect::Connector;
use lane_task::LaneTask;
use moving::MovingSlots;
use names::Names;
use send::ClaimSender;
use spilled::SpilledCallers;
use stats::TransportCounters;
use tollgate_store::sharded::{Failure, Location, OnceRecord, ShardId, ShardInfo, Sharded};
use tollgate_store::{Clock, DebitOutbox, DenyCache, Guarded, KeyPrivacy, Leased, Regions, Summed, SystemClock};
use topology::Topology;

/// The interval at which [`RedisStore::wait_until_ready`] probes the shards.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// The address of Redis and the connection settings.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// The servers.
    pub address: Address,
    /// The user; otherwise the address's user, otherwise Redis's default user.
    pub user: Option<String>,
    /// The password; otherwise the address's password.
    pub password: Option<Password>,
    /// With TLS: the certificates of the authorities that sign the servers' certificates, in PEM. Otherwise the
    /// system's.
    pub ca: Option<Vec<u8>>,
    /// With TLS: the client certificate.
    pub client_cert: Option<ClientCert>,
    /// The prefix of all keys.
    pub prefix: String,
    /// The form of private values, such as API keys, in the names of counters. Processes with the same counters must
    /// have the same secrets, or none: then they agree on one in Redis.
    pub key_privacy: Arc<KeyPrivacy>,
    /// The number of connections to each node, 1 to [`RedisConfig::MAX_CONNECTIONS`].
    pub pool: usize,
    /// The number of round trips that may be under way on a connection at a time, 1 to [`RedisConfig::MAX_ROUND_TRIPS`]. One is
    /// best for a server nearby: the claims that arrive meanwhile leave together.
    pub round_trips: usize,
}

/// A client certificate.
#[derive(Clone)]
pub struct ClientCert {
    /// The certificate and its chain, in PEM.
    pub certificate: Vec<u8>,
    /// The private key, in PEM.
    pub key: Vec<u8>,
}

/// An invalid setting, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfigError(String);

/// Counters in Redis. Clones share them.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

/// The layers of the complete store.
type LeasedRedis = Leased<RedisDebits>;
/// The same with what servers count by themselves.
type SummedRedis = Summed<LeasedRedis>;

/// The layers below leases, and the way to other regions.
type RedisDebits = DebitOutbox<DenyCache<Arc<Guarded<RedisRegions>>>, Arc<Guarded<RedisRegions>>>;

/// This region's Redis, and those of others.
type RedisRegions = Regions<RedisStore>;

/// The state that the store shares with its tasks.
struct Shared {
    /// Replaced when the form of private values changes.
    names: ArcSwap<Names>,
    privacy: Arc<KeyPrivacy>,
    /// Whether this process has agreed with the others on the form of private values.
    is_agreed: watch::Sender<bool>,
    /// How many may be under way on a connection.
    round_trips: usize,
    connector: Connector,
    topology: Topology,
    moving: MovingSlots,
    spilled: SpilledCallers,
    counters: TransportCounters,
    clock: SystemClock,
    /// Identifies this process among the heartbeats.
    server_id: String,
    #[cfg(feature = "conformance")]
    now: std::sync::Mutex<Option<Timestamp>>,
}

impl RedisConfig {
    /// The maximum number of connections to a node.
    pub const MAX_CONNECTIONS: usize = 64;
    /// The maximum number of round trips at a time.
    pub const MAX_ROUND_TRIPS: usize = 64;
    /// The maximum length of the prefix, in bytes.
    pub const MAX_PREFIX_BYTES: usize = 64;

    /// These servers, with default settings.
    pub fn new(address: Address) -> RedisConfig {
        RedisConfig {
            address,
            user: None,
            password: None,
            ca: None,
            client_cert: None,
            prefix: "tg:".to_owned(),
            key_privacy: Arc::default(),
            pool: 2,
            round_trips: 1,
        }
    }

    /// A store. Succeeds even if Redis is down: [`RedisStore::run`] connects to it.
    pub fn build(self) -> Result<RedisStore, RedisConfigError> {
        if self.prefix.len() > Self::MAX_PREFIX_BYTES || self.prefix.contains(['{', '}']) {
            return Err(RedisConfigError(format!(
                "a prefix has at most {} bytes and no braces, which mark hash tags in a cluster: write tg:",
                Self::MAX_PREFIX_BYTES
            )));
        }
        if !(1..=Self::MAX_CONNECTIONS).contains(&self.pool) {
            return Err(RedisConfigError(format!(
                "a pool has 1 to {} connections to each node",
                Self::MAX_CONNECTIONS
            )));
        }
        let (names, form) = (Names::new(&self.prefix), self.key_privacy.name_form());
        let shared = Shared {
            names: ArcSwap::from_pointee(form.map_or(names.clone(), |form| names.with_form(form))),
            is_agreed: watch::Sender::new(false),
            privacy: self.key_privacy.clone(),
            round_trips: self.round_trips.min(Self::MAX_ROUND_TRIPS),
            connector: Connector::new(&self)?,
            topology: Topology::new(self.address, self.pool),
            moving: MovingSlots::default(),
            spilled: SpilledCallers::default(),
            counters: TransportCounters::default(),
            clock: SystemClock::default(),
            server_id: format!("{:032x}", fastrand::u128(..)),
            #[cfg(feature = "conformance")]
            now: std::sync::Mutex::default(),
        };
        Ok(RedisStore { shared: Arc::new(shared) })
    }
}

impl RedisStore {
    /// Connects, sends queued claims, and follows the cluster or the sentinels. Never returns: the owner of the store
    /// spawns it, once. It runs on the runtime that polls it. When it is dropped, connections close and claims are no
    /// longer sent.
    pub async fn run(&self) {
        tokio::select! {
            () = discover::watch(&self.shared) => {}
            () = self.drive_lanes() => {}
            () = privacy::keep_agreed(&self.shared) => {}
        }
    }

    /// Waits until all shards answer, but no longer than the timeout. Returns whether they do. Requests that are
    /// accepted before are decided without Redis.
    pub async fn wait_until_ready(&self, timeout: Duration) -> bool {
        let all_ready = async {
            loop {
                let shards = self.shards();
                let mut ready = !shards.is_empty();
                for shard in shards {
                    ready &= self.probe(shard.id, timeout).await.is_ok();
                }
                if ready {
                    return self.shared.agreed().await;
                }
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        };
        tokio::time::timeout(timeout, all_ready).await.is_ok()
    }

    /// Waits until the form of private values in names is agreed on.
    async fn wait_until_named(&self) {
        self.shared.agreed().await;
    }

    /// Counts since the start.
    pub fn stats(&self) -> TransportStats {
        self.shared.counters.read()
    }

    /// Sets the script's clock, which is otherwise Redis's own.
    #[cfg(feature = "conformance")]
    pub fn set_now(&self, now: Timestamp) {
        *self.shared.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(now);
    }

    /// Runs a task for each lane.
    async fn drive_lanes(&self) {
        let mut tasks = JoinSet::new();
        loop {
            for (peer, lane) in self.shared.topology.lanes() {
                if lane.start_driving() {
                    tasks.spawn(LaneTask::new(Arc::clone(&self.shared), peer, lane).run());
                }
            }
            tokio::select! {
                () = self.shared.topology.new_lanes() => {}
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

impl Sharded for RedisStore {
    fn locate(&self, key: &Key<'_>) -> Location {
        let topology = &self.shared.topology;
        topology.locate(if topology.is_cluster() { self.shared.names().slot(key) } else { 0 })
    }

    async fn settle_at(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        if !self.shared.has_names_for(claim) {
            self.shared.wait_for_names(timeout).await?;
        }
        let mut sender = ClaimSender::new(&self.shared, location.slot);
        let settled = sender.settle_within(claim, record, timeout).await;
        match settled.unwrap_or_else(|| Err(sender.timeout_failure(location.shard))) {
            Ok(answer) => codec::read(answer.at, answer.bytes(), claim, settlement),
            Err(Failure::Moving) => Err(Failure::Moving),
            Err(failure) => {
                self.shared.topology.hurry();
                Err(failure)
            }
        }
    }

    async fn probe(&self, shard: ShardId, timeout: Duration) -> Result<(), Failure> {
        tokio::time::timeout(timeout, liveness::probe(&self.shared, shard)).await.unwrap_or(Err(Failure::Timeout))
    }

    fn shards(&self) -> Vec<ShardInfo> {
        self.shared.topology.shards()
    }

    async fn heartbeat(&self, timeout: Duration) -> Result<u64, Failure> {
        tokio::time::timeout(timeout, liveness::heartbeat(&self.shared)).await.unwrap_or(Err(Failure::Timeout))
    }
}

impl Shared {
    /// Whether the keys of a slot may be on two nodes now.
    fn is_moving(&self, slot: u16) -> bool {
        self.moving.contains(slot, || self.clock.now())
    }

    /// The names of values, with the current form of private values.
    fn names(&self) -> arc_swap::Guard<Arc<Names>> {
        self.names.load()
    }

    /// Our own clock, for calendar periods, or the clock that was set.
    fn now(&self) -> Timestamp {
        self.script_now().unwrap_or_else(|| self.clock.now())
    }

    /// The script's clock, if it is not Redis's own.
    #[cfg(feature = "conformance")]
    fn script_now(&self) -> Option<Timestamp> {
        *self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(not(feature = "conformance"))]
    fn script_now(&self) -> Option<Timestamp> {
        None
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("shards", &self.shards()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCert(***)")
    }
}

impl fmt::Display for RedisConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RedisConfigError {}
