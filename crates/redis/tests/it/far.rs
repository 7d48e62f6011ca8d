//! A server far away: several round trips at a time on a connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_redis::RedisConfig;
use tollgate_store::sharded::{Failure, ShardId, Sharded};
use tollgate_testing::{Redis, Relay};

use crate::{Rule, RunningStore, TIMEOUT, config, until};

const DELAY: Duration = Duration::from_millis(20);
const CLAIMS: u64 = 20;

fn far(url: &str) -> RedisConfig {
    // On one connection.
    RedisConfig { round_trips: RedisConfig::MAX_ROUND_TRIPS, pool: 1, ..config(url) }
}

fn behind(relay: &Relay) -> String {
    format!("redis://127.0.0.1:{}", relay.port())
}

#[tokio::test]
async fn a_claim_does_not_wait_for_the_round_trip_before_its_own() {
    let redis = Redis::start();
    let mut relay = Relay::far_from(redis.port(), DELAY);
    let running = Arc::new(RunningStore::new(far(&behind(&relay))));
    let rule = Arc::new(Rule::new(100));
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    let before = running.store.stats().batches;
    relay.stall();
    let mut claims = JoinSet::new();
    for sent in 1..=CLAIMS {
        let (sender, rule) = (running.clone(), rule.clone());
        claims.spawn(async move { sender.take(&rule, "me", 1, 3 * TIMEOUT).await });
        // Each has left before the next one comes, and none is answered.
        until(|| async { running_batches(&running) == before + sent }).await;
    }
    relay.pass();
    let taken = claims.join_all().await;
    assert!(taken.iter().all(Result::is_ok), "{taken:?}");
    assert_eq!(running.taken(&rule, "me").await, 1 + CLAIMS);
}

fn running_batches(running: &RunningStore) -> u64 {
    running.store.stats().batches
}

#[tokio::test]
async fn a_connection_that_breaks_fails_all_claims_under_way_and_is_made_again() {
    let redis = Redis::start();
    let mut relay = Relay::far_from(redis.port(), DELAY);
    let running = Arc::new(RunningStore::new(far(&behind(&relay))));
    let rule = Arc::new(Rule::new(100));
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
    let before = running.store.stats().batches;
    relay.stall();
    let mut claims = JoinSet::new();
    for sent in 1..=CLAIMS {
        let (sender, rule) = (running.clone(), rule.clone());
        claims.spawn(async move { sender.take(&rule, "me", 1, 3 * TIMEOUT).await });
        until(|| async { running_batches(&running) == before + sent }).await;
    }
    relay.cut();
    let failed = claims.join_all().await;
    assert!(failed.iter().all(|failed| matches!(failed, Err(Failure::Interrupted(_)))), "{failed:?}");
    relay.pass();
    assert_eq!(running.store.probe(ShardId(0), 3 * TIMEOUT).await, Ok(()));
    running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_script_that_the_server_lost_is_loaded_again() {
    let redis = Redis::start();
    let running = RunningStore::new(far(&redis.url()));
    let rule = Rule::new(100);
    for taken in 1..=5 {
        running.take(&rule, "me", 1, TIMEOUT).await.unwrap();
        redis.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(running.taken(&rule, "me").await, taken);
    }
}
