//! Settlements while Redis is down: delivered when it is back, and once, however often they are repeated meanwhile.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::task::JoinHandle;
use tollgate_core::key::Home;
use tollgate_core::{Ask, Claim, ClaimId, Key, Once, Reading, Replay, Scope, Source, Span, Timestamp, Value};
use tollgate_redis::RedisStore;
use tollgate_store::sharded::Sharded;
use tollgate_store::{Clock, GuardConfig, Guarded, Store, SystemClock};
use tollgate_testing::cluster::Cluster;
use tollgate_testing::{Redis, Relay};

use crate::{Rule, RunningStore, TIMEOUT, until};

/// The number of requests that end meanwhile.
const REQUESTS: u64 = 20;
/// The units that each request has reserved of each counter, the units that it gives back of one, and those that it
/// debits of the other.
const RESERVED: u64 = 10;
const BACK: u64 = 4;
const MORE: u64 = 3;

/// A server: its guarded store and the store itself.
struct Server {
    guard: Arc<Guarded<RedisStore>>,
    running: RunningStore,
    task: JoinHandle<()>,
}

impl Server {
    fn at(url: &str) -> Server {
        let running = RunningStore::at(url);
        let deadline = Duration::from_millis(50);
        let config = GuardConfig { deadline, cool_down: Duration::from_millis(200), ..GuardConfig::default() };
        let guard = Arc::new(Guarded::new(running.store.clone(), config));
        let tending = Arc::clone(&guard);
        Server { guard, running, task: tokio::spawn(async move { tending.run().await }) }
    }

    /// Waits until all of its connections are up.
    async fn is_connected(&self) {
        self.running.take(&Rule::new(1), "anybody", 0, TIMEOUT).await.unwrap();
        for shard in self.running.store.shards() {
            self.running.store.probe(shard.id, TIMEOUT).await.unwrap();
        }
    }

    /// Waits until the outbox is empty, and checks that nothing was dropped.
    async fn is_done(&self) {
        until(|| async { self.guard.status().waiting == 0 }).await;
        assert_eq!(self.guard.status().dropped, 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Requests that had reserved units of two callers' counters, and their settlements. The records belong to the first
/// caller.
struct Endings {
    rule: Rule,
    records: Scope,
    callers: [String; 2],
    taken_at: Timestamp,
}

impl Endings {
    async fn begin(direct: &RunningStore, callers: [String; 2]) -> Endings {
        let rule = Rule::new(1_000_000);
        for caller in &callers {
            assert!(direct.take(&rule, caller, REQUESTS * RESERVED, TIMEOUT).await.unwrap().admits);
        }
        let records = Scope::for_records("shop", "receipts", Home::Caller(0));
        Endings { rule, records, callers, taken_at: SystemClock::default().now() }
    }

    fn claim<'a>(&'a self, number: u64, name: &'a str, body: u64) -> Claim<'a> {
        let mut back = self.rule.claim(&self.callers[0], BACK);
        let mut more = self.rule.claim(&self.callers[1], MORE);
        back.charges[0].ask = Ask::Return { taken_at: self.taken_at };
        more.charges[0].ask = Ask::Regardless;
        back.charges.append(&mut more.charges);
        let key = Key::new(&self.records, smallvec![Value::Text(&self.callers[0]), Value::Text(name)]);
        let once = Once { key, body, terms: 0, keep: Span::from_secs(600) };
        Claim { id: ClaimId(u128::from(number)), once: Some(once), ..back }
    }

    /// Sends every settlement to each of these servers.
    async fn send(&self, servers: &[Server]) -> Vec<Reading> {
        let mut readings = Vec::new();
        for number in 0..REQUESTS {
            for server in servers {
                let settled = server.guard.settle(&self.claim(number, &number.to_string(), 1)).await;
                assert_ne!(settled.replay, Replay::Conflict);
                assert!(settled.readings.len() == 2 && settled.readings.iter().all(|reading| reading.admits));
                readings.extend(settled.readings);
            }
        }
        readings
    }

    /// Checks that everything was delivered and each request is settled exactly once.
    async fn are_settled_once(&self, direct: &RunningStore, servers: &[Server]) {
        for server in servers {
            server.is_done().await;
        }
        let expected = [REQUESTS * (RESERVED - BACK), REQUESTS * (RESERVED + MORE)];
        assert_eq!(self.used(direct).await, expected);
        for server in servers {
            for number in 0..REQUESTS {
                // On a busy machine there may have been no time for the answer. The settlement is delivered
                // nevertheless, and has no effect.
                let name = number.to_string();
                until(|| async {
                    let again = server.guard.settle(&self.claim(number, &name, 1)).await;
                    assert!(again.readings.iter().all(|reading| reading.admits));
                    matches!(again.replay, Replay::Again { passed: true, .. })
                        && again.readings.iter().all(|reading| reading.source == Source::Store)
                        && again.readings.iter().map(|reading| reading.taken).eq([BACK, MORE])
                })
                .await;
                until(|| async { server.guard.settle(&self.claim(number, &name, 2)).await.replay == Replay::Conflict })
                    .await;
            }
        }
        assert_eq!(self.used(direct).await, expected);
    }

    async fn used(&self, direct: &RunningStore) -> [u64; 2] {
        [direct.taken(&self.rule, &self.callers[0]).await, direct.taken(&self.rule, &self.callers[1]).await]
    }
}

fn callers() -> [String; 2] {
    ["acme".to_owned(), "globex".to_owned()]
}

fn all_assumed(readings: &[Reading]) -> bool {
    readings.iter().all(|reading| reading.source == Source::Assumed)
}

#[tokio::test]
async fn while_redis_is_dead() {
    // With persistence, so that received settlements survive a restart.
    let mut redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let servers = [Server::at(&redis.url()), Server::at(&redis.url())];
    let endings = Endings::begin(&servers[0].running, callers()).await;
    redis.kill();
    for _ in 0..2 {
        assert!(all_assumed(&endings.send(&servers).await));
    }
    for server in &servers {
        assert_eq!(server.guard.status().waiting as u64, REQUESTS, "who repeats himself adds nothing");
        let other = server.guard.settle(&endings.claim(0, "0", 2)).await;
        assert_eq!((other.replay, other.readings.len()), (Replay::Conflict, 2));
    }
    redis.restart();
    endings.send(&servers).await;
    endings.are_settled_once(&RunningStore::at(&redis.url()), &servers).await;
}

#[tokio::test]
async fn while_redis_stands_still() {
    let mut redis = Redis::start();
    let servers = [Server::at(&redis.url()), Server::at(&redis.url())];
    let endings = Endings::begin(&servers[0].running, callers()).await;
    redis.pause();
    // The first ones are in its sockets and are settled when it continues, without an answer.
    for _ in 0..2 {
        assert!(all_assumed(&endings.send(&servers).await));
    }
    redis.resume();
    endings.send(&servers).await;
    endings.are_settled_once(&RunningStore::at(&redis.url()), &servers).await;
}

#[tokio::test]
async fn while_answers_are_lost() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", relay.port());
    let servers = [Server::at(&url), Server::at(&url)];
    let direct = RunningStore::at(&redis.url());
    let endings = Endings::begin(&direct, callers()).await;
    endings.send(&servers[..1]).await;
    for number in 0..REQUESTS {
        relay.lose_reply_to(b"EVALSHA");
        let name = number.to_string();
        for server in &servers {
            server.guard.settle(&endings.claim(number, &name, 1)).await;
        }
    }
    relay.pass();
    endings.are_settled_once(&direct, &servers).await;
    assert!(relay.replies_lost() > 0);
}

#[tokio::test]
async fn while_who_asks_goes_away() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    let servers = [Server::at(&format!("redis://127.0.0.1:{}", relay.port()))];
    let direct = RunningStore::at(&redis.url());
    let endings = Endings::begin(&direct, callers()).await;
    servers[0].is_connected().await;
    relay.stall();
    for number in 0..REQUESTS {
        let name = number.to_string();
        let claim = endings.claim(number, &name, 1);
        let _ = tokio::time::timeout(Duration::from_millis(1), servers[0].guard.settle(&claim)).await;
    }
    relay.pass();
    endings.are_settled_once(&direct, &servers).await;
}

/// The record and one counter live on one node, the other counter on another. Each of them is down once.
#[tokio::test]
async fn slow_while_one_node_of_a_cluster_is_away() {
    for away in [0, 1] {
        let mut cluster = Cluster::behind_relays();
        let servers = [Server::at(&cluster.url()), Server::at(&cluster.url())];
        for server in &servers {
            // A connection that is being made would not be cut.
            server.is_connected().await;
        }
        let store = &servers[0].running;
        let home = |caller: &str| {
            let name = store.store.locate(&Rule::new(1).claim(caller, 1).charges[0].key).shard;
            store.store.shards().into_iter().find(|shard| shard.id == name).unwrap().name
        };
        let on = |cluster: &mut Cluster, node: usize| {
            let name = format!("127.0.0.1:{}", cluster.node(node).port());
            (0..).map(|number: u32| format!("caller-{number}")).find(|caller| home(caller) == name).unwrap()
        };
        let callers = [on(&mut cluster, 0), on(&mut cluster, 1)];
        let endings = Endings::begin(store, callers).await;
        cluster.node(away).relay().refuse();
        cluster.node(away).relay().cut();
        for _ in 0..2 {
            let readings = endings.send(&servers).await;
            let assumed = |at: usize| readings.iter().skip(at).step_by(2).all(|one| one.source == Source::Assumed);
            assert!(assumed(away), "an undelivered settlement was reported as delivered");
        }
        if away == 0 {
            // Without the answer of the record's node, nothing is sent to the other.
            assert_eq!(store.taken(&endings.rule, &endings.callers[1]).await, REQUESTS * RESERVED);
        }
        cluster.node(away).relay().pass();
        endings.send(&servers).await;
        endings.are_settled_once(&RunningStore::at(&cluster.url()), &servers).await;
    }
}
