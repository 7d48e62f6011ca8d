//! What all servers have in common, whoever came first.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::redis::RedisStore;
use tollgate_store::sharded::Failure;
use tollgate_testing::cluster::Cluster;
use tollgate_testing::{Redis, Sentinel};

use crate::{PATIENCE, Tended, config};

/// What everybody has under a name after many proposed something else at once, on several stores.
async fn agreed(stores: &[RedisStore], name: &str) -> Vec<u8> {
    let mut proposals = JoinSet::new();
    for asker in 0..40 {
        let (store, name) = (stores[asker % stores.len()].clone(), name.to_owned());
        proposals
            .spawn(async move { store.agree_on(&name, format!("of {asker}").as_bytes(), PATIENCE).await.unwrap() });
    }
    let told: BTreeSet<Vec<u8>> = proposals.join_all().await.into_iter().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let one = told.into_iter().next().unwrap();
    assert!(one.starts_with(b"of "), "{one:?}");
    assert_eq!(stores[0].agree_on(name, b"late", PATIENCE).await.unwrap(), one);
    one
}

#[tokio::test]
async fn the_first_proposal_is_everybodys() {
    let redis = Redis::start();
    let tended = [Tended::at(&redis.url()), Tended::at(&redis.url())];
    let stores: Vec<RedisStore> = tended.iter().map(|tended| tended.store.clone()).collect();
    for name in ["one", "two", "{odd} name"] {
        let told = agreed(&stores, name).await;
        assert_eq!(redis.ask(&["GET", &format!("tg:{{agreed}}:{name}")]).text().as_bytes(), told);
        assert_eq!(redis.ask(&["PTTL", &format!("tg:{{agreed}}:{name}")]).text(), "-1");
    }
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(stores[0].agree_on("bytes", &bytes, PATIENCE).await.unwrap(), bytes);
    assert_eq!(stores[1].agree_on("bytes", b"", PATIENCE).await.unwrap(), bytes);
    assert_eq!(stores[1].agree_on("nothing", b"", PATIENCE).await.unwrap(), b"");
    let mut other = config(&redis.url());
    other.prefix = "other:".to_owned();
    assert_eq!(Tended::new(other).store.agree_on("one", b"another fleet", PATIENCE).await.unwrap(), b"another fleet");
}

#[tokio::test]
async fn what_is_no_value_is_told() {
    let redis = Redis::start();
    let tended = Tended::at(&redis.url());
    redis.say("SADD tg:{agreed}:set a");
    redis.ask(&["SET", "tg:{agreed}:long", &"x".repeat(RedisStore::LONGEST_AGREED + 1)]);
    for name in ["set", "long"] {
        let refused = tended.store.agree_on(name, b"mine", PATIENCE).await;
        let why = format!("tg:{{agreed}}:{name} is something else in Redis: delete it there");
        assert_eq!(refused, Err(Failure::Refused(why)));
    }
    let long = vec![0; RedisStore::LONGEST_AGREED + 1];
    let refused = tended.store.agree_on("mine", &long, PATIENCE).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("at most 4096 bytes")), "{refused:?}");
    assert_eq!(redis.ask(&["EXISTS", "tg:{agreed}:mine"]).text(), "0");
}

#[tokio::test]
async fn a_user_of_the_page_may_agree_and_others_are_told_why_not() {
    let page = include_str!("../../../../docs/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let redis = Redis::start();
    assert_eq!(redis.say(&line.replace("PASSWORD", "pass")).lines().next(), Some("+OK"));
    let tended = Tended::at(&format!("redis://tollgate:pass@127.0.0.1:{}", redis.port()));
    assert_eq!(tended.store.agree_on("name", b"mine", PATIENCE).await.unwrap(), b"mine");
    redis.say("ACL SETUSER looks on >pass ~tg:* -@all +hello +auth +eval +script|load +mget");
    let looks = Tended::at(&format!("redis://looks:pass@127.0.0.1:{}", redis.port()));
    let refused = looks.store.agree_on("name", b"theirs", PATIENCE).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("run this command")), "{refused:?}");
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for_and_no_longer_than_that() {
    let mut redis = Redis::start();
    redis.kill();
    let tended = Tended::at(&redis.url());
    let failed = tended.store.agree_on("name", b"mine", Duration::from_millis(50)).await;
    assert!(matches!(failed, Err(Failure::Unreachable(_) | Failure::Timeout)), "{failed:?}");
    let store = tended.store.clone();
    let waiting = tokio::spawn(async move { store.agree_on("name", b"mine", PATIENCE).await });
    let redis = tokio::task::spawn_blocking(move || {
        redis.restart();
        redis
    });
    let mut redis = redis.await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), b"mine");
    redis.pause();
    let failed = tended.store.agree_on("name", b"other", Duration::from_millis(50)).await;
    assert!(failed.is_err(), "{failed:?}");
    redis.resume();
    assert_eq!(tended.store.agree_on("name", b"other", PATIENCE).await.unwrap(), b"mine");
}

#[tokio::test]
async fn slow_a_cluster_agrees_also_while_the_slot_moves() {
    let mut cluster = Cluster::start();
    let tended = [Tended::at(&cluster.url()), Tended::at(&cluster.url())];
    let stores: Vec<RedisStore> = tended.iter().map(|tended| tended.store.clone()).collect();
    let first = agreed(&stores, "first").await;
    let slot = cluster.slot_of("tg:{agreed}:first");
    let from = cluster.primary_of(slot).unwrap();
    let to = (from + 1) % 3;
    // On its way: what is new is asked of the node that gets the slot, what was there of the one that has it.
    let id = |cluster: &mut Cluster, number: usize| cluster.node(number).redis.ask(&["CLUSTER", "MYID"]).text();
    let (from_id, to_id) = (id(&mut cluster, from), id(&mut cluster, to));
    cluster.node(to).redis.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    cluster.node(from).redis.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    assert_eq!(stores[0].agree_on("first", b"late", PATIENCE).await.unwrap(), first);
    let second = agreed(&stores, "second").await;
    assert_eq!(cluster.node(from).redis.ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).text(), "1");
    // There: who asks the old node is told.
    cluster.reshard(slot..slot + 1, from, to);
    for store in &stores {
        assert_eq!(store.agree_on("first", b"late", PATIENCE).await.unwrap(), first);
        assert_eq!(store.agree_on("second", b"late", PATIENCE).await.unwrap(), second);
    }
    // One who takes a node of it for a server by itself is told.
    let alone = Tended::at(&format!("redis://127.0.0.1:{}", cluster.node(from).port()));
    let refused = alone.store.agree_on("first", b"late", PATIENCE).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("MOVED")), "{refused:?}");
}

#[tokio::test]
async fn slow_a_primary_of_sentinels_has_what_was_agreed() {
    let mut sentinel = Sentinel::start();
    let tended = [Tended::at(&sentinel.url()), Tended::at(&sentinel.url())];
    let stores: Vec<RedisStore> = tended.iter().map(|tended| tended.store.clone()).collect();
    let told = agreed(&stores, "name").await;
    let replica = &sentinel.servers[1];
    // Once its replica knows it, it outlives its primary.
    crate::until(|| async { replica.ask(&["GET", "tg:{agreed}:name"]).text().as_bytes() == told }).await;
    sentinel.servers[0].kill();
    for store in &stores {
        assert_eq!(store.agree_on("name", b"late", 3 * PATIENCE).await.unwrap(), told);
    }
}
