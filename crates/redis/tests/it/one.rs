//! One server without faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::sharded::{Failure, Location, ShardId, Sharded};
use tollgate_testing::Redis;

use crate::{Rule, RunningStore, TIMEOUT, config, until};

#[tokio::test]
async fn claims_are_settled() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(3);
    let mut admitted = Vec::new();
    for _ in 0..5 {
        let reading = running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
        admitted.push((reading.admits, reading.remaining));
    }
    assert_eq!(admitted, [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)]);
    assert_eq!(running.store.locate(&rule.claim("me", 1).charges[0].key), Location { shard: ShardId(0), slot: 0 });
    let shards = running.store.shards();
    assert_eq!((shards.len(), shards[0].id, &shards[0].name), (1, ShardId(0), &format!("127.0.0.1:{}", redis.port())));
}

#[tokio::test]
async fn claims_that_wait_share_the_next_round_trip() {
    const AT_ONCE: u64 = 256;
    const ROUNDS: u64 = 20;
    let redis = Redis::start();
    let running = Arc::new(RunningStore::at(&redis.url()));
    let rule = Arc::new(Rule::new(1_000_000));
    running.take(&rule, "0", 0, TIMEOUT).await.unwrap();
    redis.inline("CONFIG RESETSTAT");
    let mut askers = JoinSet::new();
    for asker in 0..AT_ONCE {
        let (running, rule) = (Arc::clone(&running), Arc::clone(&rule));
        askers.spawn(async move {
            for _ in 0..ROUNDS {
                running.take(&rule, &(asker % 50).to_string(), 1, TIMEOUT).await.unwrap();
            }
        });
    }
    askers.join_all().await;
    let (calls, claims) = (redis.commandstats("evalsha"), AT_ONCE * ROUNDS);
    assert!(calls * 8 <= claims, "{calls} calls for {claims} claims");
    let stats = running.store.stats();
    assert_eq!((stats.claims, stats.calls, stats.batches), (claims + 1, calls + 1, calls + 1));
    let mut taken = 0;
    for caller in 0..50u64 {
        taken += running.taken(&rule, &caller.to_string()).await;
    }
    assert_eq!(taken, claims);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_come_from_any_thread_and_runtime() {
    const THREADS: u64 = 4;
    const CLAIMS: u64 = 200;
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(300);
    let admitted = AtomicU64::new(0);
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..CLAIMS {
                            let reading = running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
                            admitted.fetch_add(u64::from(reading.admits), Ordering::Relaxed);
                        }
                    });
                });
            }
        });
    });
    assert_eq!(admitted.into_inner(), 300);
}

#[tokio::test]
async fn a_lone_claim_waits_for_nobody() {
    const CLAIMS: u64 = 200;
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(1_000_000);
    running.take(&rule, "me", 0, TIMEOUT).await.unwrap();
    let lone = async {
        for _ in 0..CLAIMS {
            running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(2), lone).await.expect("a claim alone takes a round trip and no more");
    assert_eq!(running.store.stats().batches, CLAIMS + 1);
}

#[tokio::test]
async fn a_script_that_is_gone_is_loaded_again() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(10);
    for round in 1..=5 {
        redis.inline("SCRIPT FLUSH");
        let reading = running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
        assert_eq!(reading.remaining, 10 - round);
    }
    // Each key has one lane, so one connection sees all of it. The first time it may have just connected.
    assert!((4..=5).contains(&running.resent("noscript")), "{:?}", running.store.stats());
}

#[tokio::test]
async fn servers_count_each_other() {
    let redis = Redis::start();
    let (one, other) = (RunningStore::at(&redis.url()), RunningStore::at(&redis.url()));
    assert_eq!(one.store.heartbeat(TIMEOUT).await, Ok(1));
    assert_eq!(one.store.heartbeat(TIMEOUT).await, Ok(1));
    assert_eq!(other.store.heartbeat(TIMEOUT).await, Ok(2));
    // A server without a heartbeat for three intervals, by Redis's clock.
    redis.inline("ZADD tg:{replicas} 1000 long-gone");
    assert_eq!(one.store.heartbeat(TIMEOUT).await, Ok(2));
    let left: i64 = redis.command(&["PTTL", "tg:{replicas}"]).text().parse().unwrap();
    assert!((1..=6_000).contains(&left), "{left}");
}

#[tokio::test]
async fn eviction_is_warned_of() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let running = RunningStore::at(&redis.url());
    running.store.probe(ShardId(0), TIMEOUT).await.unwrap();
    let warning = running.store.shards()[0].warning.clone().unwrap();
    assert!(warning.contains("allkeys-lru") && warning.contains("set maxmemory-policy noeviction"), "{warning}");
    redis.inline("CONFIG SET maxmemory-policy noeviction");
    let store = &running.store;
    until(|| async {
        // A probe checks the connection.
        store.probe(ShardId(0), TIMEOUT).await.unwrap();
        store.shards()[0].warning.is_none()
    })
    .await;
}

#[tokio::test]
async fn whoever_stops_tending_may_begin_again() {
    let redis = Redis::start();
    let mut running = RunningStore::at(&redis.url());
    let rule = Rule::new(10);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    running.task.abort();
    // Its connections close with it, and nothing is sent.
    until(|| async { redis.info("clients", "connected_clients").as_deref() == Some("1") }).await;
    assert_eq!(running.take(&rule, "me", 1, Duration::from_millis(10)).await, Err(Failure::Timeout));
    let store = running.store.clone();
    running.task = tokio::spawn(async move { store.run().await });
    assert_eq!(running.take(&rule, "me", 1, TIMEOUT).await.unwrap().remaining, 8);
}

#[tokio::test]
async fn two_fleets_share_a_server_by_their_prefixes() {
    let redis = Redis::start();
    let one = RunningStore::at(&redis.url());
    let mut other = config(&redis.url());
    other.prefix = "other:".to_owned();
    let other = RunningStore::new(other);
    let rule = Rule::new(10);
    one.take(&rule, "me", 4, TIMEOUT).await.unwrap();
    assert_eq!((one.taken(&rule, "me").await, other.taken(&rule, "me").await), (4, 0));
    assert_eq!(other.store.heartbeat(TIMEOUT).await, Ok(1));
}

#[test]
fn invalid_settings_are_reported() {
    let mut braces = config("redis://localhost");
    braces.prefix = "{tg}:".to_owned();
    let mut none = config("redis://localhost");
    none.pool = 0;
    let mut many = config("redis://localhost");
    many.pool = 65;
    let mut plain = config("redis://localhost");
    plain.ca = Some(Vec::new());
    let mut empty = config("rediss://localhost");
    empty.ca = Some(b"no certificate".to_vec());
    let rows = [
        (braces, "no braces"),
        (none, "1 to 64"),
        (many, "1 to 64"),
        (plain, "rediss://"),
        (empty, "BEGIN CERTIFICATE"),
    ];
    for (config, part) in rows {
        let error = config.build().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
