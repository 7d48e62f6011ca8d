//! Entries that servers tell each other.

use tollgate_redis::RedisStore;
use tollgate_store::sharded::Failure;
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::RunningStore;

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
