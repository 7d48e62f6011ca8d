//! One server with faults: down, cut off, silent, full.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate_store::sharded::{Failure, ShardId, Sharded};
use tollgate_testing::{Redis, Relay};

use crate::{Rule, RunningStore, TIMEOUT, config, until};

/// The default deadline, with some margin for busy machines.
const DEADLINE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_server_that_comes_late_is_found() {
    let mut redis = Redis::start();
    redis.kill();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(10);
    // The first claim waits for the first attempt to connect; once that failed, claims fail immediately.
    for _ in 0..2 {
        let failed = running.take(&rule, "me", 1, TIMEOUT).await;
        assert!(matches!(&failed, Err(Failure::Unreachable(why)) if why.contains("refused")), "{failed:?}");
    }
    assert!(running.store.probe(ShardId(0), TIMEOUT).await.is_err());
    redis.restart();
    assert_eq!(running.store.probe(ShardId(0), TIMEOUT).await, Ok(()));
    assert_eq!(running.take(&rule, "me", 1, TIMEOUT).await.unwrap().remaining, 9);
}

#[tokio::test]
async fn a_server_that_comes_late_needs_no_hand() {
    let mut redis = Redis::start();
    redis.kill();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(10);
    assert!(running.take(&rule, "me", 1, TIMEOUT).await.is_err());
    redis.restart();
    until(|| async { running.take(&rule, "me", 1, TIMEOUT).await.is_ok() }).await;
    assert_eq!(running.taken(&rule, "me").await, 1);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_charged_once() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    let direct = RunningStore::at(&redis.url());
    let running = RunningStore::at(&format!("redis://127.0.0.1:{}", relay.port()));
    let rule = Rule::new(100);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    for lost in 1..=3 {
        relay.lose_reply_to(b"EVALSHA");
        let failed = running.take(&rule, "me", 1, TIMEOUT).await;
        assert!(matches!(failed, Err(Failure::Interrupted(_))), "{failed:?}");
        assert_eq!(relay.replies_lost(), lost);
        assert_eq!(direct.taken(&rule, "me").await, 1 + lost as u64);
    }
    relay.pass();
    // The store reconnects by itself.
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    assert_eq!(direct.taken(&rule, "me").await, 5);
    let stats = running.store.stats();
    assert!(stats.resent.iter().all(|(_, times)| *times == 0), "{stats:?}");
    assert_eq!((stats.claims, stats.lost), (5, 3));
}

#[tokio::test]
async fn a_connection_that_ends_while_idle_costs_nobody_anything() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port());
    let running = RunningStore::at(&format!("redis://127.0.0.1:{}", relay.port()));
    let rule = Rule::new(1_000);
    for round in 1..=5 {
        running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
        // Both connections are up.
        running.store.probe(ShardId(0), TIMEOUT).await.unwrap();
        relay.cut();
        until(|| async { running.store.stats().lost == 2 * round }).await;
    }
    assert_eq!(running.taken(&rule, "me").await, 5);
}

#[tokio::test]
async fn a_server_that_stalls_costs_the_deadline_and_charges_only_what_reached_it() {
    let mut redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(100);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    redis.pause();
    let stalled = async {
        let mut timeouts = 0;
        for _ in 0..5 {
            match running.take(&rule, "me", 1, DEADLINE).await {
                Err(Failure::Timeout) => timeouts += 1,
                // The machine was so busy that this process did not run before the deadline.
                Err(Failure::Late) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(running.store.probe(ShardId(0), DEADLINE).await, Err(Failure::Timeout));
        timeouts
    };
    let stalled = tokio::time::timeout(Duration::from_secs(5), stalled).await;
    let timeouts = stalled.expect("each waits for its deadline and no more");
    redis.resume();
    assert_eq!(running.store.probe(ShardId(0), TIMEOUT).await, Ok(()));
    until(|| async { running.take(&rule, "me", 0, TIMEOUT).await.is_ok() }).await;
    // One claim waited for the server's answer, unless all were late. The others were dropped from the queue.
    let taken = running.taken(&rule, "me").await;
    assert!(taken == 2 || (taken == 1 && timeouts == 0), "{taken} taken, {timeouts} timeouts");
}

#[tokio::test]
async fn slow_a_server_that_stalls_for_long_is_down_and_then_well() {
    let mut redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(100);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    redis.pause();
    let mut waits = 0;
    // The connection is given up, and so is the attempt to reconnect: then claims fail immediately.
    let why = loop {
        match running.take(&rule, "me", 0, DEADLINE).await {
            Err(Failure::Timeout | Failure::Late) => waits += 1,
            Err(Failure::Unreachable(why)) => break why,
            other => panic!("{other:?}"),
        }
        assert!(waits < 1_000);
    };
    assert!(why.contains("in time") || why.contains("timed out"), "{why}");
    assert!(waits > 5, "{waits}");
    redis.resume();
    until(|| async { running.take(&rule, "me", 1, TIMEOUT).await.is_ok() }).await;
    assert_eq!(running.taken(&rule, "me").await, 2);
}

#[tokio::test]
async fn no_more_wait_than_may() {
    const MOST: usize = 10_000;
    // A server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut one = config(&format!("redis://{}", silent.local_addr().unwrap()));
    one.pool = 1;
    let running = Arc::new(RunningStore::new(one));
    let rule = Arc::new(Rule::new(1));
    let mut askers = JoinSet::new();
    for _ in 0..MOST + 5 {
        let (running, rule) = (Arc::clone(&running), Arc::clone(&rule));
        askers.spawn(async move { running.take(&rule, "me", 1, TIMEOUT).await.unwrap_err() });
    }
    let failures = askers.join_all().await;
    let refused =
        failures.iter().filter(|failure| matches!(failure, Failure::Refused(why) if why.contains("10000 claims wait")));
    assert_eq!(refused.count(), 5);
    let unreachable = failures.iter().filter(|failure| matches!(failure, Failure::Unreachable(_)));
    assert_eq!(unreachable.count(), MOST);
}

#[tokio::test]
async fn refusals_are_reported_and_not_sent_again() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(100);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    redis.inline("CONFIG SET maxmemory 1");
    let full = running.take(&rule, "me", 1, TIMEOUT).await;
    assert!(matches!(&full, Err(Failure::Refused(why)) if why.contains("OOM")), "{full:?}");
    let probed = running.store.probe(ShardId(0), TIMEOUT).await;
    assert!(matches!(&probed, Err(Failure::Refused(why)) if why.contains("OOM")), "{probed:?}");
    redis.inline("CONFIG SET maxmemory 0");
    assert_eq!(running.store.probe(ShardId(0), TIMEOUT).await, Ok(()));
    assert_eq!(running.taken(&rule, "me").await, 1);
    assert!(running.store.stats().resent.iter().all(|(_, times)| *times == 0));
}

#[tokio::test]
async fn a_replica_is_not_written_to() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    let rule = Rule::new(100);
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    redis.inline(&format!("REPLICAOF 127.0.0.1 {}", tollgate_testing::free_port()));
    let refused = running.take(&rule, "me", 1, TIMEOUT).await;
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("READONLY")), "{refused:?}");
    // Within a short deadline the error is reported, too, and not only a timeout.
    until(|| async {
        let refused = running.take(&rule, "me", 1, DEADLINE).await;
        matches!(&refused, Err(Failure::Refused(why)) if why.contains("READONLY"))
    })
    .await;
    assert!(running.resent("readonly") >= 8);
    let probed = running.store.probe(ShardId(0), TIMEOUT).await;
    assert!(matches!(&probed, Err(Failure::Refused(why)) if why.contains("not a primary")), "{probed:?}");
    redis.inline("REPLICAOF NO ONE");
    assert_eq!(running.store.probe(ShardId(0), TIMEOUT).await, Ok(()));
    assert_eq!(running.taken(&rule, "me").await, 1);
}
