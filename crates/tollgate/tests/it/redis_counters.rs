//! Counters in Redis for services: opened, driven in the background, shared, and closed.

use std::time::Duration;

use tollgate::redis::{OpenError, RedisConfig, RedisCounters};
use tollgate::{Decision, Descriptor, GuardConfig, Limiter, Request, Source};
use tollgate_testing::{Redis, eventually, free_port};

use crate::support::rules;

const RULES: &str = "
domain: shop
rules:
  - {name: per-key, key: [key], limit: 3/day}
";

const SECOND: Duration = Duration::from_secs(1);

fn limiter(counters: RedisCounters) -> Limiter<RedisCounters> {
    Limiter::new(rules(RULES, 1), counters)
}

async fn check(limiter: &Limiter<RedisCounters>) -> Decision {
    let descriptors = [Descriptor::new(&[("key", "k")])];
    limiter.check_request(&Request { descriptors: &descriptors, ..Request::default() }).await.unwrap()
}

fn connections(redis: &Redis) -> Option<u64> {
    // Without the connection of this query.
    Some(redis.info("clients", "connected_clients")?.parse::<u64>().ok()? - 1)
}

#[tokio::test]
async fn services_share_their_counters_and_close_them() {
    let redis = Redis::start();
    // A deadline that a busy machine does not exceed.
    let guard = GuardConfig { deadline: 30 * SECOND, ..GuardConfig::default() };
    let config = || RedisConfig::new(redis.url().parse().unwrap());
    let [one, other] = [(); 2].map(|()| limiter(RedisCounters::new(config(), guard).unwrap()));
    for limiter in [&one, &other] {
        assert!(limiter.store().wait_until_ready(30 * SECOND).await);
        assert_eq!(limiter.store().status().heartbeat_error, None);
    }
    let mut left = Vec::new();
    for limiter in [&one, &other, &one] {
        let decision = check(limiter).await;
        assert_eq!((decision.allowed(), decision.source()), (true, Source::Store), "{decision:?}");
        left.push(decision.tightest().unwrap().reading.remaining);
    }
    assert_eq!(left, [2, 1, 0]);
    assert!(!check(&other).await.allowed());
    assert!(connections(&redis).unwrap() >= 2 && one.store().stats().claims > 0);
    drop((one, other));
    assert!(eventually(|| (connections(&redis)? == 0).then_some(())).is_some(), "connections are left open");
}

#[tokio::test]
async fn an_unavailable_redis_is_not_an_error_and_an_invalid_address_is() {
    let counters = RedisCounters::open(&format!("redis://127.0.0.1:{}", free_port())).unwrap();
    assert!(!counters.wait_until_ready(SECOND / 5).await);
    let decision = check(&limiter(counters)).await;
    assert!(decision.allowed() && decision.source() != Source::Store, "{decision:?}");
    let error = RedisCounters::open("memcached://127.0.0.1").unwrap_err();
    assert!(matches!(error, OpenError::Address(_)) && !error.to_string().is_empty(), "{error}");
}
