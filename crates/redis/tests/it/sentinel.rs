//! A primary behind sentinels, and its successor.

use std::time::Duration;

use tollgate_store::sharded::{Failure, ShardId, Sharded};
use tollgate_testing::resp::Connection;
use tollgate_testing::{Redis, Sentinel};

use crate::{Rule, RunningStore, TIMEOUT, until};

#[tokio::test]
async fn slow_the_successor_of_a_primary_is_found() {
    let mut sentinel = Sentinel::start();
    let running = RunningStore::at(&sentinel.url());
    let rule = Rule::new(1_000);
    let name = |running: &RunningStore| running.store.shards()[0].name.clone();
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    assert_eq!(name(&running), format!("127.0.0.1:{}", sentinel.servers[0].port()));
    sentinel.servers[0].kill();
    until(|| async {
        let _ = running.store.probe(ShardId(0), Duration::from_millis(200)).await;
        running.take(&rule, "me", 1, Duration::from_millis(200)).await.is_ok()
    })
    .await;
    assert_eq!(name(&running), format!("127.0.0.1:{}", sentinel.servers[1].port()));
    let shards = running.store.shards();
    assert_eq!((shards.len(), shards[0].id), (1, ShardId(0)));
    // A sentinel that has not heard of the failover would name the old primary, which considers itself the primary
    // until it is demoted.
    until(|| async { sentinel.primary() == Some(1) }).await;
    // The old one comes back as a replica, and is not used as the primary.
    sentinel.servers[0].restart();
    // Sentinels close all connections when they demote it.
    let role = || Connection::open(sentinel.servers[0].port()).and_then(|mut connection| connection.command(&["ROLE"]));
    until(|| async { role().is_ok_and(|role| role.text().contains("slave")) }).await;
    for _ in 0..20 {
        running.store.probe(ShardId(0), TIMEOUT).await.unwrap();
        running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    }
    assert_eq!(name(&running), format!("127.0.0.1:{}", sentinel.servers[1].port()));
}

#[tokio::test]
async fn slow_unknown_primaries_are_reported() {
    let sentinel = Sentinel::start();
    let other = sentinel.url().replace("/tollgate", "/other");
    let running = RunningStore::at(&other);
    let failed = running.take(&Rule::new(1), "me", 1, TIMEOUT).await;
    assert!(
        matches!(&failed, Err(Failure::Refused(why)) if why.contains("no primary of the name other")),
        "{failed:?}"
    );
    assert!(running.store.probe(ShardId(0), TIMEOUT).await.is_err());
    assert!(other.ends_with(&running.store.shards()[0].name), "{:?}", running.store.shards());
}

#[tokio::test]
async fn a_server_is_no_sentinel() {
    let open = Redis::start();
    let guarded = Redis::start_with(&["--requirepass", "secret"]);
    // Only a sentinel with a password requires ours.
    for (who, redis, expected) in [
        ("", &open, "unknown command"),
        (":secret@", &open, "unknown command"),
        (":secret@", &guarded, "unknown command"),
        ("", &guarded, "NOAUTH"),
    ] {
        let running = RunningStore::at(&format!("redis+sentinel://{who}127.0.0.1:{}/primary", redis.port()));
        let failed = running.take(&Rule::new(1), "me", 1, TIMEOUT).await;
        assert!(matches!(&failed, Err(Failure::Refused(why)) if why.contains(expected)), "{failed:?}");
    }
}
