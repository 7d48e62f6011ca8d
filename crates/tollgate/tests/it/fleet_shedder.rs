//! A limit on all requests in flight, with a reserve for critical ones: the same in memory and in Redis.

use tollgate::{ClaimId, Decision, Descriptor, Limiter, Request, RequestOutcome, Store};

use crate::support::manual_limiter;

const RULES: &str = "
domain: d
rules:
  - {name: fleet, key: [], limit_by: priority, limit: {critical: 5 concurrent, default: 3 concurrent}, hold: 10m, shed: true}
";

async fn check<S: Store>(limiter: &Limiter<S>, class: &str, id: u128) -> Decision {
    let entries = [("priority", class)];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { descriptors: &descriptors, claim: Some(ClaimId(id)), ..Request::default() };
    limiter.check_request(&request).await.unwrap()
}

/// Several servers with one counter.
async fn hold_the_reserve<S: Store>(servers: &[&Limiter<S>]) {
    let mut ids = 1..;
    let mut next = || (ids.next().unwrap(), servers[fastrand::usize(..servers.len())]);
    let mut held = Vec::new();
    // Critical requests count, and take from what all may use.
    for (class, expected) in [("get", true), ("critical", true), ("post", true), ("get", false), ("test", false)] {
        let (id, server) = next();
        let decision = check(server, class, id).await;
        assert_eq!(decision.allowed(), expected, "{class}");
        held.extend(expected.then_some(decision));
    }
    for expected in [true, true, false, false] {
        let (id, server) = next();
        let decision = check(server, "critical", id).await;
        assert_eq!(decision.allowed(), expected);
        if !expected {
            let by = decision.denied_by().unwrap();
            assert!(by.rule.sheds());
            assert_eq!((by.rule.name(), by.limit.amount()), ("fleet", 5));
        }
        held.extend(expected.then_some(decision));
    }
    // What ends makes room, for critical requests first.
    for (released, others_pass) in [(1, false), (1, false), (1, true)] {
        for decision in held.drain(..released) {
            let (_, server) = next();
            let settled = server.settle_receipt(decision.receipt().unwrap(), RequestOutcome::Ok, None, None).await;
            assert!(settled.unwrap().is_stored());
        }
        let (id, server) = next();
        let decision = check(server, "get", id).await;
        assert_eq!(decision.allowed(), others_pass);
    }
    let (id, server) = next();
    assert!(!check(server, "get", id).await.allowed());
    let (id, server) = next();
    assert!(check(server, "critical", id).await.allowed());
}

#[test]
fn critical_requests_have_a_reserve_in_memory() {
    let (limiter, _clock) = manual_limiter(RULES);
    tollgate::poll_once(hold_the_reserve(&[&limiter])).unwrap();
}

/// One server in its own memory is exact, whoever counts.
#[test]
fn critical_requests_have_a_reserve_in_memory_where_servers_count() {
    let (limiter, _clock) = manual_limiter(&RULES.replace("shed: true", "shed: true, count: summed"));
    tollgate::poll_once(hold_the_reserve(&[&limiter])).unwrap();
}

#[cfg(feature = "redis")]
#[test]
fn critical_requests_have_a_reserve_in_redis() {
    use std::time::Duration;

    use tollgate::GuardConfig;
    use tollgate::redis::{RedisConfig, RedisCounters};

    let redis = tollgate_testing::Redis::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // A deadline that a busy machine does not exceed.
    let guard = || GuardConfig { deadline: Duration::from_secs(30), ..GuardConfig::default() };
    let server = || {
        let counters = RedisCounters::new(RedisConfig::new(redis.url().parse().unwrap()), guard()).unwrap();
        let limiter = Limiter::new(crate::support::rules(RULES, 1), counters);
        assert!(runtime.block_on(limiter.store().wait_until_ready(Duration::from_secs(30))));
        limiter
    };
    let (one, other) = (server(), server());
    runtime.block_on(hold_the_reserve(&[&one, &other]));
}
