//! Counters in Redis, Redis Cluster, or behind sentinels: anything that runs scripts.
//!
//! ```text
//! settle_at ─ Packet (codec) ─▶ Sending ─ the node of the slot (topology) ─▶ Lane ─ the next round trip (drive) ─▶ lua
//! ```
//!
//! A claim is one call of one script, shared with those that arrived while a round trip was under way. It is sent again only after
//! an answer that proves that it did not run. Connections are made and kept by [`RedisStore::tend`], which somebody must
//! run; claims may come from any thread and any runtime.

mod address;
mod agreed;
mod batch;
mod codec;
mod connect;
mod discover;
mod drive;
mod fault;
mod hub;
mod lane;
mod names;
mod password;
mod pulse;
mod script;
mod send;
mod stats;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::{Claim, Key, Settlement, Timestamp};

pub use address::{Address, AddressError};
pub use password::Password;
pub use stats::RedisStats;

use crate::clock::{Clock, SystemClock};
use crate::sharded::{Failure, Place, Record, ShardId, ShardInfo, Sharded};
use codec::Packet;
use connect::Connector;
use drive::Driver;
use names::Names;
use send::Sending;
use stats::Counters;
use topology::Topology;

/// How often is asked who waits for the first answer.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Where Redis is, and how to speak to it.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// The servers.
    pub address: Address,
    /// The user; else the address's, else Redis's default user.
    pub user: Option<String>,
    /// The password; else the address's.
    pub password: Option<Password>,
    /// With TLS: the certificates that sign servers', in PEM; else the system's.
    pub ca: Option<Vec<u8>>,
    /// With TLS: who we are.
    pub client_cert: Option<ClientCert>,
    /// What the names of all values begin with.
    pub prefix: String,
    /// Connections to each node, from 1 to [`RedisConfig::MOST_CONNECTIONS`].
    pub pool: usize,
}

/// A client's certificate.
#[derive(Clone)]
pub struct ClientCert {
    /// The certificate and those that lead to it, in PEM.
    pub certificate: Vec<u8>,
    /// Its key, in PEM.
    pub key: Vec<u8>,
}

/// A setting that can't be used, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfigError(String);

/// Counters in Redis. Clones share them.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

/// What the store and its tasks have in common.
struct Shared {
    names: Names,
    connector: Connector,
    topology: Topology,
    counters: Counters,
    clock: SystemClock,
    /// What this process is called among those that beat.
    me: String,
    #[cfg(feature = "conformance")]
    now: std::sync::Mutex<Option<Timestamp>>,
}

impl RedisConfig {
    /// The most connections to a node.
    pub const MOST_CONNECTIONS: usize = 64;
    /// The longest prefix.
    pub const LONGEST_PREFIX: usize = 64;

    /// These servers, and the defaults.
    pub fn new(address: Address) -> RedisConfig {
        RedisConfig {
            address,
            user: None,
            password: None,
            ca: None,
            client_cert: None,
            prefix: "tg:".to_owned(),
            pool: 2,
        }
    }

    /// A store. A Redis that is down is no error: [`RedisStore::tend`] connects to it.
    pub fn build(self) -> Result<RedisStore, RedisConfigError> {
        if self.prefix.len() > Self::LONGEST_PREFIX || self.prefix.contains(['{', '}']) {
            return Err(RedisConfigError(format!(
                "a prefix has at most {} bytes and no braces, which say what belongs together in a cluster: write tg:",
                Self::LONGEST_PREFIX
            )));
        }
        if !(1..=Self::MOST_CONNECTIONS).contains(&self.pool) {
            return Err(RedisConfigError(format!(
                "a pool has 1 to {} connections to each node",
                Self::MOST_CONNECTIONS
            )));
        }
        let shared = Shared {
            names: Names::new(&self.prefix),
            connector: Connector::new(&self)?,
            topology: Topology::new(self.address, self.pool),
            counters: Counters::default(),
            clock: SystemClock::default(),
            me: format!("{:032x}", fastrand::u128(..)),
            #[cfg(feature = "conformance")]
            now: std::sync::Mutex::default(),
        };
        Ok(RedisStore { shared: Arc::new(shared) })
    }
}

impl RedisStore {
    /// Connects, sends what waits, and follows the cluster or the sentinels. Never ends: whoever owns the store spawns it, once. What
    /// it does runs on the runtime that polls it; when it is dropped, connections close and claims are no longer sent.
    pub async fn tend(&self) {
        tokio::select! {
            () = discover::watch(&self.shared) => {}
            () = self.drive() => {}
        }
    }

    /// Waits until all shards answer, but not for longer than this; whether they do. Who takes requests before that decides the first
    /// ones without Redis.
    pub async fn first_answer(&self, within: Duration) -> bool {
        let all_answer = async {
            loop {
                let shards = self.shards();
                let mut well = !shards.is_empty();
                for shard in shards {
                    well &= self.probe(shard.id, within).await.is_ok();
                }
                if well {
                    return;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        timeout(within, all_answer).await.is_ok()
    }

    /// What was done since the start.
    pub fn stats(&self) -> RedisStats {
        self.shared.counters.read()
    }

    /// Sets the script's clock, which is Redis's own else.
    #[cfg(feature = "conformance")]
    pub fn set_now(&self, now: Timestamp) {
        *self.shared.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(now);
    }

    /// Has a task for each lane.
    async fn drive(&self) {
        let mut drivers = JoinSet::new();
        loop {
            for (peer, lane) in self.shared.topology.lanes() {
                if lane.take_over() {
                    drivers.spawn(Driver::new(Arc::clone(&self.shared), peer, lane).run());
                }
            }
            tokio::select! {
                () = self.shared.topology.newcomers() => {}
                Some(_) = drivers.join_next() => {}
            }
        }
    }
}

impl Sharded for RedisStore {
    fn place(&self, key: &Key<'_>) -> Place {
        let topology = &self.shared.topology;
        topology.place(if topology.is_cluster() { self.shared.names.slot(key) } else { 0 })
    }

    async fn settle_at(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        within: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let packet = Box::new(Packet::of(claim, record, &self.shared.names, self.shared.now()));
        let mut sending = Sending::new(&self.shared, place.slot);
        let part = match timeout(within, sending.settle(packet)).await {
            Ok(settled) => settled?,
            Err(_) => return Err(sending.gave_up()),
        };
        let answer = part.bytes.get(part.range).unwrap_or_default();
        codec::read(part.at, answer, claim, settlement)
    }

    async fn probe(&self, shard: ShardId, within: Duration) -> Result<(), Failure> {
        timeout(within, pulse::probe(&self.shared, shard)).await.unwrap_or(Err(Failure::Timeout))
    }

    fn shards(&self) -> Vec<ShardInfo> {
        self.shared.topology.shards()
    }

    async fn heartbeat(&self, within: Duration) -> Result<u64, Failure> {
        timeout(within, pulse::beat(&self.shared)).await.unwrap_or(Err(Failure::Timeout))
    }
}

impl Shared {
    /// Our own clock, for the periods of calendars; or the one that is set.
    fn now(&self) -> Timestamp {
        self.script_now().unwrap_or_else(|| self.clock.now())
    }

    /// The script's clock, where that is not Redis's own.
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
