//! What the store said before it failed still counts: nobody gets a share of a limit that is used up.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Mode, OnFailure, Source, Span, Wait};
use tollgate_store::{Circuit, GuardConfig};

use crate::guarded::world::{Rule, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const SECOND: Duration = Duration::from_secs(1);

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Bucket { burst: 12, paced: false },
    Algorithm::Bucket { burst: 12, paced: true },
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow { sub_windows: 1 },
    Algorithm::SlidingWindow { sub_windows: 6 },
    Algorithm::SlidingLog,
];

fn twelve(algorithm: Algorithm, on_failure: OnFailure) -> Rule {
    Rule::new("twelve", 12, algorithm, on_failure)
}

async fn admitted(server: &Server, rule: &Rule, attempts: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..attempts {
        admitted += u64::from(server.one(rule.take("x", 1)).await.admits);
    }
    admitted
}

/// A server that has heard of this many from the store.
async fn among(replicas: u64) -> Server {
    let mut server = Server::new(1);
    server.shards.set_replicas(replicas);
    server.run();
    server.pass(Duration::from_millis(100)).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_room_gets_no_share() {
    for replicas in [1, 3] {
        for algorithm in ALGORITHMS {
            for on_failure in [OnFailure::Local, OnFailure::Allow] {
                let (server, rule) = (among(replicas).await, twelve(algorithm, on_failure));
                skip(server.shards.clock(), 20 * SECOND);
                assert_eq!(admitted(&server, &rule, 13).await, 12);
                let refused = server.one(rule.take("x", 1)).await;
                server.lose(0).await;
                let here = server.one(rule.take("x", 1)).await;
                assert_eq!((here.admits, here.taken, here.source), (false, 0, Source::Local), "{algorithm:?}");
                let (Wait::For(before), Wait::For(after)) = (refused.wait, here.wait) else { panic!("{here:?}") };
                assert!(after <= before && before.as_micros() - after.as_micros() < 100_000, "{before:?} {after:?}");
                assert_eq!(admitted(&server, &rule, 30).await, 0, "{algorithm:?} {on_failure:?}");
                assert_eq!(server.guard.status().owed, 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn local_counters_continue_from_the_last_reading() {
    for algorithm in ALGORITHMS {
        for (replicas, used, share) in [(1, 5, 7), (1, 11, 1), (1, 12, 0), (3, 0, 4), (3, 3, 3), (3, 11, 1), (3, 12, 0)]
        {
            let (server, rule) = (among(replicas).await, twelve(algorithm, OnFailure::Local));
            skip(server.shards.clock(), 20 * SECOND);
            assert_eq!(admitted(&server, &rule, used).await, used);
            server.lose(0).await;
            let admitted = admitted(&server, &rule, 30).await;
            assert_eq!(admitted, share, "{algorithm:?}: {used} used, among {replicas}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_a_period_for_what_was_used_before() {
    for algorithm in ALGORITHMS {
        let (server, rule) = (Server::new(1), twelve(algorithm, OnFailure::Local));
        skip(server.shards.clock(), 20 * SECOND);
        // Taken evenly, as most callers do: one every five seconds.
        for _ in 0..12 {
            skip(server.shards.clock(), 5 * SECOND);
            assert!(server.one(rule.take("x", 1)).await.admits);
        }
        server.lose(0).await;
        let mut passed = 0;
        for _ in 0..12 {
            skip(server.shards.clock(), 5 * SECOND);
            passed += admitted(&server, &rule, 1).await;
        }
        assert!(passed >= 8, "{algorithm:?}: only {passed} of 12");
        skip(server.shards.clock(), 121 * SECOND);
        assert_eq!(admitted(&server, &rule, 30).await, 12, "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_of_an_operator_ends_the_memory_of_a_refusal() {
    for ask in [Ask::Reset, Ask::Credit] {
        let (server, rule) = (Server::new(1), twelve(Algorithm::SlidingLog, OnFailure::Local));
        assert_eq!(admitted(&server, &rule, 13).await, 12);
        let order = server.one(rule.asks("x", ask, 5, Mode::Enforce)).await;
        server.lose(0).await;
        assert_eq!(admitted(&server, &rule, 30).await, order.remaining, "{ask:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_answers_it_decides() {
    let (server, rule) = (Server::new(1), twelve(Algorithm::FixedWindow, OnFailure::Local));
    let other = Server::over(server.shards.clone(), GuardConfig::default());
    assert_eq!(admitted(&server, &rule, 13).await, 12);
    // Another server resets the counter; this one hears of it from the store.
    other.one(rule.asks("x", Ask::Reset, 0, Mode::Enforce)).await;
    let reading = server.one(rule.take("x", 1)).await;
    assert_eq!((reading.admits, reading.source), (true, Source::Store));
    server.lose(0).await;
    assert_eq!(admitted(&server, &rule, 30).await, 11);
}

#[tokio::test(start_paused = true)]
async fn what_passed_in_an_earlier_outage_counts_too() {
    let (mut server, rule) = (Server::new(1), twelve(Algorithm::FixedWindow, OnFailure::Local));
    server.lose(0).await;
    assert_eq!(admitted(&server, &rule, 3).await, 3);
    server.node(0).set_fault(ShardFault::None);
    server.run();
    server.pass(7 * SECOND).await;
    assert_eq!((server.circuit(0), server.guard.status().owed), (Circuit::Closed, 0));
    assert_eq!(admitted(&server, &rule, 30).await, 9, "three were debited");
    server.lose(0).await;
    assert_eq!(admitted(&server, &rule, 30).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_refused_from_memory_takes_nothing_elsewhere() {
    let (server, rule) = (Server::new(1), twelve(Algorithm::FixedWindow, OnFailure::Local));
    let other = Rule::new("other", 10, Algorithm::SlidingLog, OnFailure::Local);
    assert_eq!(admitted(&server, &rule, 13).await, 12);
    server.lose(0).await;
    for _ in 0..20 {
        let both = server.settle(&claim([other.take("x", 1), rule.take("x", 1)])).await;
        assert_eq!((both.readings[0].taken, both.readings[1].admits), (0, false));
    }
    assert_eq!(server.one(other.take("x", 0)).await.remaining, 10);
    // Charges that are not enforced have no refusal, and count.
    let soft = server.one(rule.asks("x", Ask::Exactly, 1, Mode::Soft)).await;
    assert_eq!((soft.taken, soft.remaining), (1, 0));
    assert!(soft.wait > Wait::For(Span::ZERO));
}
