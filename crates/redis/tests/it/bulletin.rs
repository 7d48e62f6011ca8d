//! Entries that servers tell each other.

use std::time::Duration;

use tollgate_redis::{RedisCounters, RedisRegion, RedisStore};
use tollgate_store::sharded::Failure;
use tollgate_store::{BulletinEntry, DebitConfig, GuardConfig, InRegion, LeaseConfig, SharedStore as _};
use tollgate_testing::cluster::Cluster;
use tollgate_testing::{Redis, Relay};

use crate::{RunningStore, TIMEOUT, config, until};

async fn published(store: &RedisStore) -> Vec<(String, Vec<u8>)> {
    let mut entries = store.published("news").await.unwrap();
    entries.sort();
    entries
}

/// What one server publishes all others read.
async fn is_read_by_all(url: &str) {
    let (one, other) = (RunningStore::at(url), RunningStore::at(url));
    assert_eq!(published(&other.store).await, []);
    one.store.publish("news", "a", b"first", false).await.unwrap();
    // An entry stays as it is, unless it is to be replaced.
    other.store.publish("news", "a", b"second", false).await.unwrap();
    one.store.publish("news", "b", b"\xff\0", false).await.unwrap();
    let entry = |id: &str, text: &[u8]| (id.to_owned(), text.to_vec());
    assert_eq!(published(&other.store).await, [entry("a", b"first"), entry("b", b"\xff\0")]);
    other.store.publish("news", "a", b"third", true).await.unwrap();
    assert_eq!(published(&one.store).await, [entry("a", b"third"), entry("b", b"\xff\0")]);
    // An empty text removes what it replaces, and nothing else.
    one.store.publish("news", "a", b"", true).await.unwrap();
    one.store.publish("news", "c", b"", true).await.unwrap();
    assert_eq!(published(&other.store).await, [entry("b", b"\xff\0")]);
    one.store.publish("news", "a", b"again", false).await.unwrap();
    assert_eq!(published(&other.store).await.len(), 2);
}

#[tokio::test]
async fn a_bulletin_is_read_by_all_and_bounded() {
    let redis = Redis::start();
    is_read_by_all(&redis.url()).await;
    let left: u128 = redis.command(&["PTTL", "tg:{agreed}:news"]).text().parse().unwrap();
    let retention = RedisStore::BULLETIN_RETENTION.as_millis();
    assert!((retention / 2..=retention).contains(&left), "{left}");
    let running = RunningStore::at(&redis.url());
    let long = vec![b'x'; RedisStore::MAX_BULLETIN_BYTES + 1];
    assert!(matches!(running.store.publish("news", "c", &long, false).await, Err(Failure::Refused(_))));
    for n in 2..RedisStore::MAX_BULLETIN_ENTRIES {
        redis.command(&["HSET", "tg:{agreed}:news", &n.to_string(), ""]);
    }
    let refused = running.store.publish("news", "c", b"", false).await;
    assert_eq!(refused, Err(Failure::Refused("news: there are too many entries".to_owned())));
    running.store.publish("news", "a", b"replaced", true).await.unwrap();
}

#[tokio::test]
async fn a_bulletin_is_on_one_node_of_a_cluster() {
    is_read_by_all(&Cluster::start().url()).await;
}

/// A region has the bulletin by itself, and one that is cut off holds up no other.
#[tokio::test]
async fn all_regions_have_a_bulletin_and_each_answers_for_itself() {
    const NEWS: (&str, &[u8]) = ("a", b"first");
    let redis = [Redis::start(), Redis::start()];
    let mut relay = Relay::to(redis[1].port());
    let far = RedisRegion::new("far", config(&format!("redis://127.0.0.1:{}", relay.port())));
    let guard = GuardConfig { deadline: TIMEOUT, ..GuardConfig::default() };
    let (leases, debits) = (LeaseConfig::default(), DebitConfig::default());
    let server = RedisCounters::in_regions(config(&redis[0].url()), vec![far], guard, leases, debits, None).unwrap();
    assert!(server.wait_until_ready(TIMEOUT).await);
    let entry = BulletinEntry { id: NEWS.0, text: NEWS.1, is_replaced: false };
    let there = RunningStore::at(&redis[1].url());

    relay.stall();
    let answers = server.publish("news", entry, Duration::from_millis(300)).await;
    assert_eq!(answers[0], InRegion::here(Ok(())));
    assert!(answers[1].region.as_deref() == Some("far") && answers[1].answer.is_err(), "{answers:?}");
    assert!(published(&there.store).await.is_empty());
    let answers = server.published("news", Duration::from_millis(300)).await;
    assert_eq!(answers[0].answer, Ok(vec![(NEWS.0.to_owned(), NEWS.1.to_vec())]));
    assert!(answers[1].answer.is_err(), "{answers:?}");

    relay.pass();
    until(|| async { server.publish("news", entry, TIMEOUT).await.iter().all(|one| one.answer.is_ok()) }).await;
    assert_eq!(published(&there.store).await, [(NEWS.0.to_owned(), NEWS.1.to_vec())]);
    let answers = server.published("news", TIMEOUT).await;
    assert!(answers.iter().all(|one| one.answer.as_ref().is_ok_and(|entries| entries.len() == 1)), "{answers:?}");
}
