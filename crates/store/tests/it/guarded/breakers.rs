//! When a breaker opens, and when its shard is probed.

use std::time::Duration;

use tollgate_core::{Algorithm, Claim, OnFailure, Source, Span};
use tollgate_store::{Circuit, Level};

use crate::guarded::world::{Rule, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn five_failures_open_it_and_then_nothing_is_sent() {
    let (server, deny) = (Server::new(3), Rule::ten(OnFailure::Deny));
    let value = server.value(&deny, 1, 0);
    server.node(1).set_fault(ShardFault::Unreachable);
    for failed in 1..=5 {
        assert_eq!(server.circuit(1), Circuit::Closed, "after {} failures", failed - 1);
        assert!(!server.one(deny.take(&value, 1)).await.admits);
        skip(server.shards.clock(), 10 * MS);
    }
    assert_eq!((server.circuit(1), server.guard.status().level), (Circuit::Open, Level::Degraded));
    assert_eq!(server.node(1).calls(), 5);
    assert!(!server.one(deny.take(&value, 1)).await.admits);
    assert_eq!(server.node(1).calls(), 5, "a shard with an open breaker was called");
    let status = server.guard.status();
    assert_eq!(status.shards[1].errors, [("timeout", 0), ("unreachable", 5), ("refused", 0), ("late", 0)]);
    assert_eq!(status.shards[1].last_error.as_deref(), Some("the shard is set to be unreachable"));
    assert_eq!(status.shards[0].last_error, None);
    // The other shards are as exact as before.
    let other = server.value(&deny, 0, 0);
    for _ in 0..10 {
        assert_eq!(server.one(deny.take(&other, 1)).await.source, Source::Store);
    }
    assert!(!server.one(deny.take(&other, 1)).await.admits);
}

#[tokio::test(start_paused = true)]
async fn claims_that_fail_together_are_one_failure() {
    let (server, deny) = (Server::new(1), Rule::ten(OnFailure::Deny));
    for hiccup in 1..=5 {
        assert_eq!(server.circuit(0), Circuit::Closed, "after {} hiccups", hiccup - 1);
        server.node(0).set_fault(ShardFault::Stalled);
        for _ in 0..100 {
            assert!(!server.one(deny.take("x", 1)).await.admits);
            skip(server.shards.clock(), MS / 20);
        }
        server.node(0).set_fault(ShardFault::None);
        skip(server.shards.clock(), 100 * MS);
    }
    assert_eq!(server.circuit(0), Circuit::Open);
    assert_eq!(server.guard.status().shards[0].errors[0], ("timeout", 401), "the first of the fifth hiccup");
}

#[tokio::test(start_paused = true)]
async fn the_impatience_of_callers_is_no_failure() {
    let (server, deny) = (Server::new(1), Rule::ten(OnFailure::Deny));
    server.node(0).set_fault(ShardFault::Stalled);
    for (timeout, circuit) in [(6_000, Circuit::Closed), (20_000, Circuit::Open)] {
        for _ in 0..40 {
            let hasty = Claim { timeout: Some(Span::from_micros(timeout)), ..claim([deny.take("x", 1)]) };
            assert!(!server.settle(&hasty).await.readings[0].admits);
            skip(server.shards.clock(), 10 * MS);
        }
        assert_eq!(server.circuit(0), circuit, "{timeout} µs");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_far_apart_do_not_open_it() {
    let (server, deny) = (Server::new(1), Rule::ten(OnFailure::Deny));
    for _ in 0..20 {
        server.node(0).set_fault(ShardFault::Error);
        server.one(deny.take("x", 1)).await;
        server.node(0).set_fault(ShardFault::None);
        server.one(deny.take("x", 0)).await;
        skip(server.shards.clock(), 500 * MS);
    }
    assert_eq!(server.circuit(0), Circuit::Closed);
    assert_eq!(server.guard.status().shards[0].errors[2], ("refused", 20));
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_rare_open_it_too() {
    let (server, deny) = (Server::new(1), Rule::ten(OnFailure::Deny));
    server.node(0).set_fault(ShardFault::Unreachable);
    server.one(deny.take("x", 1)).await;
    skip(server.shards.clock(), 2_500 * MS);
    assert_eq!(server.circuit(0), Circuit::Closed);
    server.one(deny.take("x", 1)).await;
    assert_eq!(server.circuit(0), Circuit::Open);
}

#[tokio::test(start_paused = true)]
async fn hiccups_among_many_answers_refuse_only_the_calls_that_they_meet() {
    let server = Server::new(1);
    let deny = Rule::new("many", 100_000, Algorithm::FixedWindow, OnFailure::Deny);
    for hiccup in 0..50 {
        for _ in 0..20 {
            let reading = server.one(deny.take("x", 1)).await;
            assert_eq!((reading.admits, reading.source), (true, Source::Store), "after {hiccup} hiccups");
            skip(server.shards.clock(), MS);
        }
        server.node(0).set_fault(ShardFault::Stalled);
        for _ in 0..10 {
            assert_eq!(server.one(deny.take("x", 1)).await.source, Source::Assumed, "its own call had no answer");
        }
        server.node(0).set_fault(ShardFault::None);
        skip(server.shards.clock(), 10 * MS);
    }
    assert_eq!(server.circuit(0), Circuit::Closed);
    assert_eq!(server.guard.status().shards[0].errors[0], ("timeout", 500));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_not_scheduled_does_not_blame_the_shard() {
    let server = Server::new(1);
    let deny = Rule::new("many", 100_000, Algorithm::FixedWindow, OnFailure::Deny);
    for pause in 0..50 {
        server.node(0).set_fault(ShardFault::Stalled);
        for _ in 0..3 {
            // The timer of eight milliseconds fires after thirty.
            let paused = async {
                tokio::time::sleep(MS).await;
                skip(server.shards.clock(), 30 * MS);
            };
            let (reading, ()) = tokio::join!(server.one(deny.take("x", 1)), paused);
            assert_eq!(reading.source, Source::Assumed);
        }
        server.node(0).set_fault(ShardFault::None);
        let reading = server.one(deny.take("x", 1)).await;
        assert_eq!((reading.admits, reading.source), (true, Source::Store), "after {pause} pauses");
    }
    assert_eq!(server.circuit(0), Circuit::Closed);
    let errors = server.guard.status().shards[0].errors.clone();
    assert_eq!((errors[0], errors[3]), (("timeout", 0), ("late", 150)));
}

#[tokio::test(start_paused = true)]
async fn it_is_probed_without_any_request_and_recovers() {
    let (mut server, deny) = (Server::new(2), Rule::ten(OnFailure::Deny));
    server.run();
    server.lose(1).await;
    let (calls, probes) = (server.node(1).calls(), || server.node(1).probes());
    server.pass(3_900 * MS).await;
    assert_eq!(probes(), 0, "probed before four fifths of the cool-down");
    server.pass(2_200 * MS).await;
    assert_eq!(probes(), 1, "not probed after six fifths of it");
    assert_eq!(server.circuit(1), Circuit::Open, "it is still cut off");
    server.pass(Duration::from_secs(60)).await;
    assert!((10..=15).contains(&probes()), "{} probes in a minute", probes());
    server.node(1).set_fault(ShardFault::None);
    server.pass(6_100 * MS).await;
    assert_eq!((server.circuit(1), server.guard.status().level), (Circuit::Closed, Level::Normal));
    assert_eq!(server.node(1).calls(), calls, "only probes were sent");
    let reading = server.one(deny.take(&server.value(&deny, 1, 0), 1)).await;
    assert_eq!((reading.admits, reading.source), (true, Source::Store));
}

#[tokio::test(start_paused = true)]
async fn while_it_is_probed_it_is_half_open() {
    let (mut server, deny) = (Server::new(1), Rule::ten(OnFailure::Deny));
    server.run();
    server.lose(0).await;
    server.node(0).set_fault(ShardFault::Stalled);
    let mut seen = Vec::new();
    // Until after the first probe, which takes the eight milliseconds of the deadline, and before the second.
    for _ in 0..7_000 {
        skip(server.shards.clock(), MS);
        tokio::time::sleep(MS).await;
        let calls = server.node(0).calls();
        if seen.last() != Some(&server.circuit(0)) {
            seen.push(server.circuit(0));
        }
        server.settle(&claim([deny.take("x", 1)])).await;
        assert_eq!(server.node(0).calls(), calls, "a claim was sent to an unavailable shard");
    }
    assert_eq!(seen, [Circuit::Open, Circuit::HalfOpen, Circuit::Open]);
}
