//! Servers that count concurrent requests by themselves, and exchange their counts through a real Redis.

use smallvec::smallvec;
use tollgate_core::key::{Home, PrivateValues};
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Shortcuts, Source,
    Span, Timestamp, Value,
};
use tollgate_redis::RedisCounters;
use tollgate_store::{GuardConfig, LeaseConfig, Store as _};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::{TIMEOUT, config, until};

/// At most 6 requests at a time in the fleet.
struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Rule {
    fn new() -> Rule {
        let period = Period::fixed(Span::from_secs(3_600)).unwrap();
        let limit = Limit::new(6, period, Algorithm::Concurrency).unwrap();
        let scope = Scope::new("d", "fleet", limit.algorithm(), limit.period(), Home::Own);
        Rule { scope, limit }
    }

    /// The same with a private value in the key.
    fn private() -> Rule {
        let rule = Rule::new();
        Rule { scope: rule.scope.with_private([true].into_iter().collect::<PrivateValues>()), ..rule }
    }

    fn claim(&self, id: u64, ask: Ask, units: u64) -> Claim<'_> {
        let values = if self.scope.private().is_empty() { smallvec![] } else { smallvec![Value::Text("secret")] };
        let charge = Charge {
            key: Key::new(&self.scope, values),
            limit: &self.limit,
            ask,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Summed,
        };
        Claim { id: ClaimId::generated(1, id), charges: smallvec![charge], once: None, timeout: None }
    }

    async fn take(&self, server: &RedisCounters, id: u64) -> Reading {
        server.settle(&self.claim(id, Ask::Exactly, 1)).await.readings[0]
    }

    async fn back(&self, server: &RedisCounters, id: u64) -> Reading {
        server.settle(&self.claim(id, Ask::Return { taken_at: Timestamp::default() }, 1)).await.readings[0]
    }

    async fn left(&self, server: &RedisCounters) -> (u64, Source) {
        let reading = server.settle(&self.claim(0, Ask::Exactly, 0)).await.readings[0];
        (reading.remaining, reading.source)
    }

    /// Waits until each of these servers knows how much is left.
    async fn until_left(&self, servers: &[&RedisCounters], left: u64) {
        for server in servers {
            until(|| async { self.left(server).await == (left, Source::Summed) }).await;
        }
    }
}

async fn server(url: &str) -> RedisCounters {
    // A deadline that a busy machine does not exceed.
    let guard = GuardConfig { deadline: TIMEOUT, replicas: 3, ..GuardConfig::default() };
    let server = RedisCounters::restored(config(url), guard, LeaseConfig::default(), None).unwrap();
    assert!(server.wait_until_ready(TIMEOUT).await);
    server
}

async fn count_together(url: &str, rule: &Rule) {
    let (one, two, three) = (server(url).await, server(url).await, server(url).await);
    let all = [&one, &two, &three];
    rule.until_left(&all, 6).await;
    assert!(rule.take(&one, 1).await.admits && rule.take(&one, 2).await.admits && rule.take(&two, 3).await.admits);
    rule.until_left(&all, 3).await;
    for id in 4..7 {
        assert!(rule.take(&three, id).await.admits);
    }
    rule.until_left(&all, 0).await;
    let refused = rule.take(&two, 7).await;
    assert_eq!((refused.admits, refused.source), (false, Source::Summed));
    // A request may end on another server than it began.
    assert_eq!(rule.back(&one, 1).await.source, Source::Summed);
    assert_eq!(rule.back(&one, 6).await.source, Source::Assumed);
    rule.until_left(&all, 2).await;
    // A server that stops takes its requests with it at once; one of `three` was released, two remain.
    drop(three);
    rule.until_left(&[&one, &two], 4).await;
}

#[tokio::test]
async fn servers_admit_against_their_sum() {
    let redis = Redis::start();
    count_together(&redis.url(), &Rule::new()).await;
}

#[tokio::test]
async fn servers_admit_against_their_sum_in_a_cluster_also_by_private_values() {
    count_together(&Cluster::start().url(), &Rule::private()).await;
}

#[tokio::test]
async fn calls_do_not_depend_on_the_number_of_requests() {
    let (redis, rule) = (Redis::start(), Rule::new());
    let server = server(&redis.url()).await;
    rule.until_left(&[&server], 6).await;
    let calls = || redis.commandstats("evalsha") + redis.commandstats("eval");
    let before = calls();
    for id in 0..20_000 {
        rule.take(&server, id).await;
        rule.back(&server, id).await;
    }
    // Ten exchanges a second, and heartbeats: enough for a machine that takes a minute for this.
    let made = calls() - before;
    assert!(made < 1_000, "{made} calls for 40,000 claims");
}

#[tokio::test]
async fn without_redis_each_server_enforces_its_share_and_afterwards_the_sum_again() {
    let (mut redis, rule) = (Redis::start(), Rule::new());
    let (one, two) = (server(&redis.url()).await, server(&redis.url()).await);
    rule.until_left(&[&one, &two], 6).await;
    for id in 1..6 {
        assert!(rule.take(&one, id).await.admits);
    }
    rule.until_left(&[&one, &two], 1).await;
    redis.kill();
    // 6 by three servers.
    until(|| async { rule.left(&two).await == (2, Source::Local) }).await;
    until(|| async { one.sums().is_stale }).await;
    assert!(!rule.take(&one, 6).await.admits);
    assert!(rule.take(&two, 7).await.admits && rule.take(&two, 8).await.admits && !rule.take(&two, 9).await.admits);
    assert!(one.sums().age > Some(Span::from_micros(750_000)));
    redis.restart();
    // One more than the limit is in flight.
    until(|| async { rule.left(&one).await == (0, Source::Summed) && !one.sums().is_stale }).await;
    until(|| async { rule.left(&two).await == (0, Source::Summed) }).await;
    assert!(!rule.take(&two, 10).await.admits);
    assert_eq!((rule.back(&two, 7).await.taken, rule.back(&two, 8).await.taken), (1, 1));
    rule.until_left(&[&one, &two], 1).await;
}

#[tokio::test]
async fn counts_that_redis_loses_are_published_again() {
    let (redis, rule) = (Redis::start(), Rule::new());
    let (one, two) = (server(&redis.url()).await, server(&redis.url()).await);
    rule.until_left(&[&one, &two], 6).await;
    for id in 1..5 {
        assert!(rule.take(&one, id).await.admits);
    }
    rule.until_left(&[&one, &two], 2).await;
    redis.command(&["DEL", "tg:{agreed}:summed", "tg:{agreed}:summed-at"]);
    until(|| async { redis.command(&["HLEN", "tg:{agreed}:summed"]).text() == "1" }).await;
    rule.until_left(&[&one, &two], 2).await;
    // What nobody publishes any more expires.
    let left: i64 = redis.command(&["PTTL", "tg:{agreed}:summed"]).text().parse().unwrap();
    assert!(left <= 750, "{left}");
}
