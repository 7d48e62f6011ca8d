//! A primary that sentinels name, and its successor.

use std::time::Duration;

use tollgate_store::sharded::{Failure, ShardId, Sharded};
use tollgate_testing::resp::Connection;
use tollgate_testing::{Redis, Sentinel};

use crate::{PATIENCE, Rule, Tended, until};

#[tokio::test]
async fn slow_the_successor_of_a_primary_is_found() {
    let mut sentinel = Sentinel::start();
    let tended = Tended::at(&sentinel.url());
    let rule = Rule::new(1_000);
    let name = |tended: &Tended| tended.store.shards()[0].name.clone();
    tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
    assert_eq!(name(&tended), format!("127.0.0.1:{}", sentinel.servers[0].port()));
    sentinel.servers[0].kill();
    until(|| async {
        let _ = tended.store.probe(ShardId(0), Duration::from_millis(200)).await;
        tended.take(&rule, "me", 1, Duration::from_millis(200)).await.is_ok()
    })
    .await;
    assert_eq!(name(&tended), format!("127.0.0.1:{}", sentinel.servers[1].port()));
    let shards = tended.store.shards();
    assert_eq!((shards.len(), shards[0].id), (1, ShardId(0)));
    // A sentinel that has not heard yet would name the old one, which takes itself for the primary until it is told.
    until(|| async { sentinel.primary() == Some(1) }).await;
    // The old one comes back as a replica, and nobody takes it for the primary.
    sentinel.servers[0].restart();
    // Sentinels cut everybody off when they make it one.
    let role = || Connection::open(sentinel.servers[0].port()).and_then(|mut connection| connection.ask(&["ROLE"]));
    until(|| async { role().is_ok_and(|role| role.text().contains("slave")) }).await;
    for _ in 0..20 {
        tended.store.probe(ShardId(0), PATIENCE).await.unwrap();
        tended.take(&rule, "me", 1, PATIENCE).await.unwrap();
    }
    assert_eq!(name(&tended), format!("127.0.0.1:{}", sentinel.servers[1].port()));
}

#[tokio::test]
async fn slow_what_sentinels_do_not_know_is_told() {
    let sentinel = Sentinel::start();
    let other = sentinel.url().replace("/tollgate", "/other");
    let tended = Tended::at(&other);
    let failed = tended.take(&Rule::new(1), "me", 1, PATIENCE).await;
    assert!(
        matches!(&failed, Err(Failure::Refused(why)) if why.contains("no primary of the name other")),
        "{failed:?}"
    );
    assert!(tended.store.probe(ShardId(0), PATIENCE).await.is_err());
    assert!(other.ends_with(&tended.store.shards()[0].name), "{:?}", tended.store.shards());
}

#[tokio::test]
async fn a_server_is_no_sentinel() {
    let open = Redis::start();
    let guarded = Redis::start_with(&["--requirepass", "secret"]);
    // Only one who has a password asks for ours.
    for (who, redis, told) in [
        ("", &open, "unknown command"),
        (":secret@", &open, "unknown command"),
        (":secret@", &guarded, "unknown command"),
        ("", &guarded, "NOAUTH"),
    ] {
        let tended = Tended::at(&format!("redis+sentinel://{who}127.0.0.1:{}/primary", redis.port()));
        let failed = tended.take(&Rule::new(1), "me", 1, PATIENCE).await;
        assert!(matches!(&failed, Err(Failure::Refused(why)) if why.contains(told)), "{failed:?}");
    }
}
