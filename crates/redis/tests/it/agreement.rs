//! Values that all servers agree on, whichever proposal came first.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_redis::RedisStore;
use tollgate_store::sharded::Failure;
use tollgate_testing::cluster::Cluster;
use tollgate_testing::{Redis, Sentinel};

use crate::{RunningStore, TIMEOUT, config};

/// The agreed value after many concurrent, different proposals on several stores.
async fn agreed(stores: &[RedisStore], name: &str) -> Vec<u8> {
    let mut proposals = JoinSet::new();
    for asker in 0..40 {
        let (store, name) = (stores[asker % stores.len()].clone(), name.to_owned());
        proposals.spawn(async move { store.agree_on(&name, format!("of {asker}").as_bytes(), TIMEOUT).await.unwrap() });
    }
    let value: BTreeSet<Vec<u8>> = proposals.join_all().await.into_iter().collect();
    assert_eq!(value.len(), 1, "{value:?}");
    let one = value.into_iter().next().unwrap();
    assert!(one.starts_with(b"of "), "{one:?}");
    assert_eq!(stores[0].agree_on(name, b"late", TIMEOUT).await.unwrap(), one);
    one
}

#[tokio::test]
async fn the_first_proposal_is_everybodys() {
    let redis = Redis::start();
    let running = [RunningStore::at(&redis.url()), RunningStore::at(&redis.url())];
    let stores: Vec<RedisStore> = running.iter().map(|running| running.store.clone()).collect();
    for name in ["one", "two", "{odd} name"] {
        let value = agreed(&stores, name).await;
        assert_eq!(redis.command(&["GET", &format!("tg:{{agreed}}:{name}")]).text().as_bytes(), value);
        assert_eq!(redis.command(&["PTTL", &format!("tg:{{agreed}}:{name}")]).text(), "-1");
    }
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(stores[0].agree_on("bytes", &bytes, TIMEOUT).await.unwrap(), bytes);
    assert_eq!(stores[1].agree_on("bytes", b"", TIMEOUT).await.unwrap(), bytes);
    assert_eq!(stores[1].agree_on("nothing", b"", TIMEOUT).await.unwrap(), b"");
    let mut other = config(&redis.url());
    other.prefix = "other:".to_owned();
    assert_eq!(
        RunningStore::new(other).store.agree_on("one", b"another fleet", TIMEOUT).await.unwrap(),
        b"another fleet"
    );
}

#[tokio::test]
async fn invalid_values_are_reported() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    redis.inline("SADD tg:{agreed}:set a");
    redis.command(&["SET", "tg:{agreed}:long", &"x".repeat(RedisStore::MAX_AGREED_BYTES + 1)]);
    for name in ["set", "long"] {
        let refused = running.store.agree_on(name, b"mine", TIMEOUT).await;
        let why = format!("tg:{{agreed}}:{name} in Redis is not an agreed value: delete it there");
        assert_eq!(refused, Err(Failure::Refused(why)));
    }
    let long = vec![0; RedisStore::MAX_AGREED_BYTES + 1];
    let refused = running.store.agree_on("mine", &long, TIMEOUT).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("at most 4096 bytes")), "{refused:?}");
    assert_eq!(redis.command(&["EXISTS", "tg:{agreed}:mine"]).text(), "0");
}

#[tokio::test]
async fn the_documented_user_may_agree_and_others_get_an_error() {
    let page = include_str!("../../../../docs/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let redis = Redis::start();
    assert_eq!(redis.inline(&line.replace("PASSWORD", "pass")).lines().next(), Some("+OK"));
    let running = RunningStore::at(&format!("redis://tollgate:pass@127.0.0.1:{}", redis.port()));
    assert_eq!(running.store.agree_on("name", b"mine", TIMEOUT).await.unwrap(), b"mine");
    redis.inline("ACL SETUSER looks on >pass ~tg:* -@all +hello +auth +eval +script|load +mget");
    let looks = RunningStore::at(&format!("redis://looks:pass@127.0.0.1:{}", redis.port()));
    let refused = looks.store.agree_on("name", b"theirs", TIMEOUT).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("run this command")), "{refused:?}");
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for_and_no_longer_than_that() {
    let mut redis = Redis::start();
    redis.kill();
    let running = RunningStore::at(&redis.url());
    let failed = running.store.agree_on("name", b"mine", Duration::from_millis(50)).await;
    assert!(matches!(failed, Err(Failure::Unreachable(_) | Failure::Timeout)), "{failed:?}");
    let store = running.store.clone();
    let waiting = tokio::spawn(async move { store.agree_on("name", b"mine", TIMEOUT).await });
    let redis = tokio::task::spawn_blocking(move || {
        redis.restart();
        redis
    });
    let mut redis = redis.await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), b"mine");
    redis.pause();
    let failed = running.store.agree_on("name", b"other", Duration::from_millis(50)).await;
    assert!(failed.is_err(), "{failed:?}");
    redis.resume();
    assert_eq!(running.store.agree_on("name", b"other", TIMEOUT).await.unwrap(), b"mine");
}

#[tokio::test]
async fn slow_a_cluster_agrees_also_while_the_slot_moves() {
    let mut cluster = Cluster::start();
    let running = [RunningStore::at(&cluster.url()), RunningStore::at(&cluster.url())];
    let stores: Vec<RedisStore> = running.iter().map(|running| running.store.clone()).collect();
    // They have agreed on the form of names, which is in the same slot.
    assert!(stores[0].wait_until_ready(TIMEOUT).await);
    let first = agreed(&stores, "first").await;
    let slot = cluster.slot_of("tg:{agreed}:first");
    let from = cluster.primary_of(slot).unwrap();
    let to = (from + 1) % 3;
    // During the migration: new keys are on the node that gets the slot, existing ones on the node that has it.
    let id = |cluster: &mut Cluster, number: usize| cluster.node(number).redis.command(&["CLUSTER", "MYID"]).text();
    let (from_id, to_id) = (id(&mut cluster, from), id(&mut cluster, to));
    cluster.node(to).redis.inline(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    cluster.node(from).redis.inline(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    assert_eq!(stores[0].agree_on("first", b"late", TIMEOUT).await.unwrap(), first);
    let second = agreed(&stores, "second").await;
    assert_eq!(cluster.node(from).redis.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).text(), "2");
    // After it: the old node redirects.
    cluster.reshard(slot..slot + 1, from, to);
    for store in &stores {
        assert_eq!(store.agree_on("first", b"late", TIMEOUT).await.unwrap(), first);
        assert_eq!(store.agree_on("second", b"late", TIMEOUT).await.unwrap(), second);
    }
    // A cluster node that is addressed as a single server reports it.
    let alone = RunningStore::at(&format!("redis://127.0.0.1:{}", cluster.node(from).port()));
    let refused = alone.store.agree_on("first", b"late", TIMEOUT).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("MOVED")), "{refused:?}");
}

#[tokio::test]
async fn slow_a_primary_of_sentinels_has_what_was_agreed() {
    let mut sentinel = Sentinel::start();
    let running = [RunningStore::at(&sentinel.url()), RunningStore::at(&sentinel.url())];
    let stores: Vec<RedisStore> = running.iter().map(|running| running.store.clone()).collect();
    let value = agreed(&stores, "name").await;
    let replica = &sentinel.servers[1];
    // Once the replica has it, the value survives its primary.
    crate::until(|| async { replica.command(&["GET", "tg:{agreed}:name"]).text().as_bytes() == value }).await;
    sentinel.servers[0].kill();
    for store in &stores {
        assert_eq!(store.agree_on("name", b"late", 3 * TIMEOUT).await.unwrap(), value);
    }
}
