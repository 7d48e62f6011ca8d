//! One server that is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::sharded::{Failure, Place, ShardId, Sharded};
use tollgate_testing::Redis;

use crate::{PATIENCE, Rule, Tended, config, until};

#[tokio::test]
async fn claims_are_settled() {
    let redis = Redis::start();
    let tended = Tended::at(&redis.url());
    let rule = Rule::new(3);
    let mut admitted = Vec::new();
    for _ in 0..5 {
        let reading = tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
        admitted.push((reading.admits, reading.remaining));
    }
    assert_eq!(admitted, [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)]);
    assert_eq!(tended.store.place(&rule.claim("me", 1).charges[0].key), Place { shard: ShardId(0), slot: 0 });
    let shards = tended.store.shards();
    assert_eq!((shards.len(), shards[0].id, &shards[0].name), (1, ShardId(0), &format!("127.0.0.1:{}", redis.port())));
}

#[tokio::test]
async fn claims_that_wait_share_the_next_round_trip() {
    const AT_ONCE: u64 = 256;
    const ROUNDS: u64 = 20;
    let redis = Redis::start();
    let tended = Arc::new(Tended::at(&redis.url()));
    let rule = Arc::new(Rule::new(1_000_000));
    tended.take(&rule, "0", 0, PATIENCE).await.unwrap();
    redis.say("CONFIG RESETSTAT");
    let mut askers = JoinSet::new();
    for asker in 0..AT_ONCE {
        let (tended, rule) = (Arc::clone(&tended), Arc::clone(&rule));
        askers.spawn(async move {
            for _ in 0..ROUNDS {
                tended.take(&rule, &(asker % 50).to_string(), 1, PATIENCE).await.unwrap();
            }
        });
    }
    askers.join_all().await;
    let (calls, claims) = (redis.commandstats("evalsha"), AT_ONCE * ROUNDS);
    assert!(calls * 8 <= claims, "{calls} calls for {claims} claims");
    let stats = tended.store.stats();
    assert_eq!((stats.claims, stats.calls, stats.batches), (claims + 1, calls + 1, calls + 1));
    let mut taken = 0;
    for caller in 0..50u64 {
        taken += tended.taken(&rule, &caller.to_string()).await;
    }
    assert_eq!(taken, claims);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_come_from_any_thread_and_runtime() {
    const THREADS: u64 = 4;
    const CLAIMS: u64 = 200;
    let redis = Redis::start();
    let tended = Tended::at(&redis.url());
    let rule = Rule::new(300);
    let admitted = AtomicU64::new(0);
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..CLAIMS {
                            let reading = tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
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
    let tended = Tended::at(&redis.url());
    let rule = Rule::new(1_000_000);
    tended.take(&rule, "me", 0, PATIENCE).await.unwrap();
    let lone = async {
        for _ in 0..CLAIMS {
            tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(2), lone).await.expect("a claim alone takes a round trip and no more");
    assert_eq!(tended.store.stats().batches, CLAIMS + 1);
}

#[tokio::test]
async fn a_script_that_is_gone_is_loaded_again() {
    let redis = Redis::start();
    let tended = Tended::at(&redis.url());
    let rule = Rule::new(10);
    for round in 1..=5 {
        redis.say("SCRIPT FLUSH");
        let reading = tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
        assert_eq!(reading.remaining, 10 - round);
    }
    // Each key has one lane, so one connection noticed all of it. The first time it may just have connected.
    assert!((4..=5).contains(&tended.resent("noscript")), "{:?}", tended.store.stats());
}

#[tokio::test]
async fn servers_count_each_other() {
    let redis = Redis::start();
    let (one, other) = (Tended::at(&redis.url()), Tended::at(&redis.url()));
    assert_eq!(one.store.heartbeat(PATIENCE).await, Ok(1));
    assert_eq!(one.store.heartbeat(PATIENCE).await, Ok(1));
    assert_eq!(other.store.heartbeat(PATIENCE).await, Ok(2));
    // One that was silent for longer than three beats, by Redis's clock.
    redis.say("ZADD tg:{replicas} 1000 long-gone");
    assert_eq!(one.store.heartbeat(PATIENCE).await, Ok(2));
    let left: i64 = redis.ask(&["PTTL", "tg:{replicas}"]).text().parse().unwrap();
    assert!((1..=6_000).contains(&left), "{left}");
}

#[tokio::test]
async fn eviction_is_warned_of() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let tended = Tended::at(&redis.url());
    tended.store.probe(ShardId(0), PATIENCE).await.unwrap();
    let warning = tended.store.shards()[0].warning.clone().unwrap();
    assert!(warning.contains("allkeys-lru") && warning.contains("set maxmemory-policy noeviction"), "{warning}");
    redis.say("CONFIG SET maxmemory-policy noeviction");
    let store = &tended.store;
    until(|| async {
        // A probe has the connection looked at.
        store.probe(ShardId(0), PATIENCE).await.unwrap();
        store.shards()[0].warning.is_none()
    })
    .await;
}

#[tokio::test]
async fn whoever_stops_tending_may_begin_again() {
    let redis = Redis::start();
    let mut tended = Tended::at(&redis.url());
    let rule = Rule::new(10);
    tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
    tended.tend.abort();
    // Its connections end with it, and nothing is sent.
    until(|| async { redis.info("clients", "connected_clients").as_deref() == Some("1") }).await;
    assert_eq!(tended.take(&rule, "me", 1, Duration::from_millis(10)).await, Err(Failure::Timeout));
    let store = tended.store.clone();
    tended.tend = tokio::spawn(async move { store.tend().await });
    assert_eq!(tended.take(&rule, "me", 1, PATIENCE).await.unwrap().remaining, 8);
}

#[tokio::test]
async fn two_fleets_share_a_server_by_their_prefixes() {
    let redis = Redis::start();
    let one = Tended::at(&redis.url());
    let mut other = config(&redis.url());
    other.prefix = "other:".to_owned();
    let other = Tended::new(other);
    let rule = Rule::new(10);
    one.take(&rule, "me", 4, PATIENCE).await.unwrap();
    assert_eq!((one.taken(&rule, "me").await, other.taken(&rule, "me").await), (4, 0));
    assert_eq!(other.store.heartbeat(PATIENCE).await, Ok(1));
}

#[test]
fn settings_that_can_not_be_used_are_told() {
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
