//! Units that were counted without the store are sent to it: once, at a bounded rate, and only while they count.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, Mode, OnFailure, Settlement, Source};
use tollgate_store::{Circuit, GuardConfig, Store};

use crate::guarded::world::{Rule, START, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const MS: Duration = Duration::from_millis(1);

/// Repairs a shard, and gives the server the time to notice.
async fn come_back(server: &Server) {
    server.node(0).set_fault(ShardFault::None);
    for _ in 0..700 {
        server.pass(10 * MS).await;
        if server.circuit(0) == Circuit::Closed {
            return;
        }
    }
    panic!("the shard did not come back");
}

#[tokio::test(start_paused = true)]
async fn what_local_memory_counts_is_debited_once() {
    let mut server = Server::with(1, GuardConfig { cool_down: 500 * MS, ..GuardConfig::default() });
    server.run();
    let algorithms = [
        Algorithm::Bucket { burst: 20, paced: false },
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 10 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
    ];
    let rules: Vec<Rule> = algorithms.map(|it| Rule::new("rule", 20, it, OnFailure::Local)).into();
    for rule in &rules {
        server.one(rule.take("x", 1)).await;
    }
    server.lose(0).await;
    for rule in &rules {
        for _ in 0..3 {
            assert_eq!(server.one(rule.take("x", 1)).await.source, Source::Local);
        }
    }
    assert_eq!((server.guard.status().local, server.guard.status().owed), (6, 6));
    come_back(&server).await;
    server.pass(200 * MS).await;
    assert_eq!(server.guard.status().owed, 0);
    let calls = server.node(0).calls();
    for rule in &rules {
        let used = 20 - server.shards.peek(&rule.take("x", 0)).remaining;
        // A bucket has drained a little meanwhile.
        let expected = if matches!(rule.limit.algorithm(), Algorithm::Bucket { .. }) { 3..=4 } else { 4..=4 };
        assert!(expected.contains(&used), "{:?}: {used} used", rule.limit.algorithm());
    }
    server.pass(Duration::from_secs(10)).await;
    assert_eq!(server.node(0).calls(), calls, "something was sent twice");
}

/// The debit arrives later than the time of the check, which is all that a receipt knows.
#[tokio::test(start_paused = true)]
async fn what_was_debited_late_is_refunded() {
    for algorithm in [
        Algorithm::Bucket { burst: 20, paced: false },
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingLog,
    ] {
        let mut server = Server::with(1, GuardConfig { cool_down: 500 * MS, ..GuardConfig::default() });
        server.run();
        let rule = Rule::new("rule", 20, algorithm, OnFailure::Local);
        server.lose(0).await;
        let mut taken = Vec::new();
        for _ in 0..5 {
            let settlement = server.settle(&claim([rule.take("x", 2)])).await;
            assert_eq!(settlement.readings[0].source, Source::Local);
            taken.push(settlement.at);
            server.pass(10 * MS).await;
        }
        come_back(&server).await;
        server.pass(200 * MS).await;
        assert_eq!(server.guard.status().owed, 0);
        for taken_at in taken {
            let back = rule.asks("x", Ask::Return { taken_at }, 2, Mode::Enforce);
            assert_eq!(server.one(back).await.taken, 2, "{algorithm:?}");
        }
        let left = server.shards.peek(&rule.take("x", 0)).remaining;
        // Of each refund of a bucket, a part of a unit has drained since the check.
        let parts = if matches!(algorithm, Algorithm::Bucket { .. }) { 4 } else { 0 };
        assert!(left >= 20 - parts, "{algorithm:?}: {left}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_debit_that_fails_is_not_repeated_and_local_memory_still_counts() {
    let (mut server, rule) = (Server::new(1), Rule::ten(OnFailure::Local));
    for _ in 0..3 {
        server.node(0).set_fault(ShardFault::Mute);
        assert!(server.one(rule.take("x", 2)).await.admits);
    }
    // The store settled each of them as well, without an answer.
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 4);
    server.run();
    server.pass(100 * MS).await;
    assert_eq!((server.guard.status().owed, server.guard.status().dropped), (0, 1));
    let admitted = server.one(rule.take("x", 5)).await;
    assert!(!admitted.admits, "sent units still count here: {admitted:?}");
}

/// While the breaker is still closed, debits are sent to a shard that does not receive them.
#[tokio::test(start_paused = true)]
async fn a_debit_that_was_not_received_is_sent_again() {
    for fault in [ShardFault::Unreachable, ShardFault::Error] {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::Concurrency] {
            let mut server = Server::with(1, GuardConfig { cool_down: 500 * MS, ..GuardConfig::default() });
            let rule = Rule::new("rule", 20, algorithm, OnFailure::Local);
            server.node(0).set_fault(fault);
            server.run();
            for _ in 0..3 {
                assert_eq!(server.one(rule.take("x", 1)).await.source, Source::Local);
                server.pass(100 * MS).await;
            }
            assert_eq!((server.guard.status().owed, server.guard.status().dropped), (1, 0));
            come_back(&server).await;
            server.pass(200 * MS).await;
            assert_eq!((server.guard.status().owed, server.guard.status().dropped), (0, 0));
            assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 17, "{fault:?}, {:?}", rule.limit.algorithm());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn debits_are_paced() {
    let (mut server, rule) = (Server::new(1), Rule::ten(OnFailure::Local));
    server.lose(0).await;
    for key in 0..3_000 {
        server.one(rule.take(&key.to_string(), 1)).await;
    }
    server.run();
    come_back(&server).await;
    let before = server.node(0).calls();
    let mut sent = 0;
    while server.guard.status().owed > 0 {
        server.pass(1_000 * MS).await;
        let now = server.node(0).calls() - before;
        assert!(now - sent <= 1_050, "{} debits in a second", now - sent);
        assert!(now > sent, "nothing is sent any more");
        sent = now;
    }
    assert!((2_900..=3_000).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn units_that_no_longer_count_are_not_sent() {
    let (mut server, rule) = (Server::new(1), Rule::ten(OnFailure::Local));
    server.run();
    server.lose(0).await;
    server.one(rule.take("x", 3)).await;
    server.pass(Duration::from_secs(61)).await;
    assert_eq!((server.guard.status().local, server.guard.status().owed), (0, 0));
    let calls = server.node(0).calls();
    come_back(&server).await;
    server.pass(1_000 * MS).await;
    assert_eq!(server.node(0).calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn only_units_that_still_count_are_sent() {
    let mut server = Server::new(1);
    let rule = Rule::new("log", 10, Algorithm::SlidingLog, OnFailure::Local);
    server.lose(0).await;
    server.one(rule.take("x", 3)).await;
    skip(server.shards.clock(), Duration::from_secs(50));
    server.one(rule.take("x", 2)).await;
    skip(server.shards.clock(), Duration::from_secs(11));
    server.run();
    come_back(&server).await;
    server.pass(100 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 8);
}

#[tokio::test(start_paused = true)]
async fn holds_are_debited_under_their_own_names() {
    let mut server = Server::new(1);
    let rule = Rule::new("holds", 10, Algorithm::Concurrency, OnFailure::Local);
    let take: Vec<Claim<'_>> = (0..4).map(|_| claim([rule.take("x", 1)])).collect();
    let release = |taken: &Claim<'_>| Claim {
        id: taken.id,
        ..claim([rule.asks("x", Ask::Return { taken_at: START }, 1, Mode::Enforce)])
    };
    server.run();
    server.lose(0).await;
    for hold in &take {
        server.settle(hold).await;
    }
    server.settle(&release(&take[0])).await;
    come_back(&server).await;
    server.pass(200 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 7);
    server.settle(&release(&take[1])).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 8, "it is released by its name");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_released_before_the_store_heard_of_it_is_not_debited() {
    let mut server = Server::new(1);
    let rule = Rule::new("holds", 10, Algorithm::Concurrency, OnFailure::Local);
    let hold = claim([rule.take("x", 1)]);
    server.node(0).set_fault(ShardFault::Unreachable);
    assert_eq!(server.settle(&hold).await.readings[0].source, Source::Local);
    server.node(0).set_fault(ShardFault::None);
    let taken_at = Ask::Return { taken_at: START };
    let release = Claim { id: hold.id, ..claim([rule.asks("x", taken_at, 1, Mode::Enforce)]) };
    assert_eq!(server.settle(&release).await.readings[0].source, Source::Store);
    assert_eq!(server.guard.status().owed, 0);
    server.run();
    server.pass(100 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 10);
}

#[tokio::test(start_paused = true)]
async fn what_was_shed_is_debited_too() {
    let (mut server, rule) = (Server::new(1), Rule::ten(OnFailure::Local));
    let mut settlement = Settlement::default();
    for _ in 0..4 {
        server.guard.assume(&claim([rule.take("x", 1)]), Source::Shed, &mut settlement);
    }
    server.run();
    server.pass(100 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 6);
}

#[tokio::test(start_paused = true)]
async fn facts_are_sent_later_whatever_the_policy() {
    let (mut server, rule) = (Server::new(1), Rule::ten(OnFailure::Deny));
    server.run();
    server.lose(0).await;
    let fact = server.one(rule.asks("x", Ask::Regardless, 3, Mode::Enforce)).await;
    assert!(fact.admits);
    come_back(&server).await;
    server.pass(100 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 7);
}

/// The bound for one outage, in the window in which it lies: twice the limit plus one for each server.
#[tokio::test(start_paused = true)]
async fn an_outage_admits_no_more_than_twice_the_limit_and_one_for_each_server() {
    for (seed, replicas) in [(1, 1), (2, 2), (3, 3), (4, 7)] {
        let mut random = fastrand::Rng::with_seed(seed);
        let shards = Server::new(1).shards.clone();
        shards.set_replicas(replicas);
        let mut servers: Vec<Server> =
            (0..replicas).map(|_| Server::over(shards.clone(), GuardConfig::default())).collect();
        servers.iter_mut().for_each(Server::run);
        let rule = Rule::new("log", 100, Algorithm::SlidingLog, OnFailure::Local);
        servers[0].pass(100 * MS).await;
        let mut admitted = 0;
        // The outage begins and ends at any time, and with intermittent failures.
        let (begin, end) = (random.u32(0..200), random.u32(200..1_500));
        for step in 0..2_500 {
            let fault = match step {
                _ if step < begin || step > end => ShardFault::None,
                _ if step - begin < 10 || end - step < 10 => {
                    random.choice([ShardFault::None, ShardFault::Unreachable, ShardFault::Mute]).unwrap()
                }
                _ => ShardFault::Unreachable,
            };
            shards.nodes()[0].set_fault(fault);
            for server in &servers {
                let claim = claim([rule.take("x", 1)]);
                admitted += u64::from(server.settle(&claim).await.readings[0].admits);
            }
            servers[0].pass(20 * MS).await;
        }
        let bound = 2 * 100 + replicas;
        assert!(admitted <= bound, "{replicas} servers admitted {admitted}, not {bound} at most");
        assert!(admitted >= 100, "{admitted}");
    }
}
