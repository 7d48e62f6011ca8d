//! Holds that a claim of unknown outcome took, and that nobody can release.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Charge, Claim, ClaimId, Mode, OnFailure, Source};

use crate::guarded::world::{Rule, Server, claim};
use tollgate_store::sharded::ShardFault;

const MS: Duration = Duration::from_millis(1);

fn slot(on_failure: OnFailure) -> Rule {
    Rule::new("slot", 1, Algorithm::Concurrency, on_failure)
}

/// A claim with an id as a limiter generates it.
fn generated<'a>(number: u64, charges: impl IntoIterator<Item = Charge<'a>>) -> Claim<'a> {
    Claim { id: ClaimId::generated(7, number), ..claim(charges) }
}

fn is_free(server: &Server, rule: &Rule, value: &str) -> bool {
    server.shards.peek(&rule.take(value, 0)).remaining == 1
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_caller_that_was_refused_is_released() {
    for (on_failure, passes) in [(OnFailure::Deny, false), (OnFailure::Allow, true)] {
        let (mut server, rule) = (Server::new(1), slot(on_failure));
        server.run();
        server.node(0).set_fault(ShardFault::Mute);
        let reading = server.settle(&generated(1, [rule.take("x", 1)])).await.readings[0];
        assert_eq!((reading.admits, reading.taken, reading.source), (passes, 0, Source::Assumed));
        assert!(!is_free(&server, &rule, "x"), "the claim was settled, and its answer lost");
        server.pass(500 * MS).await;
        assert_eq!(server.guard.status().waiting, 1, "its release waits until it is confirmed");
        server.node(0).set_fault(ShardFault::None);
        server.pass(300 * MS).await;
        assert!(is_free(&server, &rule, "x"), "{on_failure:?}");
        let next = server.settle(&generated(2, [rule.take("x", 1)])).await.readings[0];
        assert_eq!((next.admits, next.source), (true, Source::Store));
        // It is sent once more, under the id of the first claim: the hold of the second one stays.
        server.pass(2_000 * MS).await;
        assert!(!is_free(&server, &rule, "x"));
        assert_eq!((server.guard.status().waiting, server.guard.status().dropped), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_its_release_is_released_again() {
    let (mut server, rule) = (Server::new(1), slot(OnFailure::Deny));
    server.run();
    server.node(0).set_fault(ShardFault::Stalled);
    let late = generated(1, [rule.take("x", 1)]);
    assert!(!server.settle(&late).await.readings[0].admits);
    server.node(0).set_fault(ShardFault::None);
    server.pass(200 * MS).await;
    // What was under way on another connection arrives now.
    server.settle(&late).await;
    assert!(!is_free(&server, &rule, "x"));
    server.pass(1_000 * MS).await;
    assert!(is_free(&server, &rule, "x"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_caller_that_went_away_is_released() {
    for fault in [ShardFault::Mute, ShardFault::Stalled] {
        for on_failure in [OnFailure::Deny, OnFailure::Local] {
            let (mut server, rule) = (Server::new(1), slot(on_failure));
            server.node(0).set_fault(fault);
            let abandoned = generated(1, [rule.take("x", 1)]);
            assert!(tokio::time::timeout(4 * MS, server.settle(&abandoned)).await.is_err());
            server.node(0).set_fault(ShardFault::None);
            server.run();
            server.pass(100 * MS).await;
            assert!(is_free(&server, &rule, "x"), "{fault:?} {on_failure:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_caller_knows_of_is_the_callers_to_release() {
    let (mut server, rule) = (Server::new(1), slot(OnFailure::Local));
    server.run();
    server.node(0).set_fault(ShardFault::Mute);
    let taken = generated(1, [rule.take("x", 1)]);
    let reading = server.settle(&taken).await.readings[0];
    assert_eq!((reading.admits, reading.taken, reading.source), (true, 1, Source::Local));
    server.node(0).set_fault(ShardFault::None);
    server.pass(2_000 * MS).await;
    assert!(!is_free(&server, &rule, "x"));
    let done = rule.asks("x", Ask::Return { taken_at: crate::guarded::world::START }, 1, Mode::Enforce);
    server.settle(&Claim { id: taken.id, ..claim([done]) }).await;
    assert!(is_free(&server, &rule, "x"));
}

#[tokio::test(start_paused = true)]
async fn holds_of_claims_that_a_caller_can_repeat_are_not_released() {
    let (mut server, rule) = (Server::new(1), slot(OnFailure::Deny));
    server.run();
    server.node(0).set_fault(ShardFault::Mute);
    // The id is not a generated one: the caller chose it, and may have repeated the claim meanwhile.
    assert!(!server.settle(&claim([rule.take("x", 1)])).await.readings[0].admits);
    server.node(0).set_fault(ShardFault::None);
    server.pass(2_000 * MS).await;
    assert_eq!((is_free(&server, &rule, "x"), server.guard.status().waiting), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_claim_release_their_holds_too() {
    for abandons in [false, true] {
        let (mut server, rule) = (Server::new(2), slot(OnFailure::Deny));
        server.run();
        let ten = Rule::ten(OnFailure::Deny);
        let (here, there) = (server.value(&ten, 0, 0), server.value(&rule, 1, 0));
        server.node(1).set_fault(ShardFault::Mute);
        let both = generated(1, [ten.take(&here, 1), rule.take(&there, 1)]);
        if abandons {
            assert!(tokio::time::timeout(4 * MS, server.settle(&both)).await.is_err());
        } else {
            assert!(!server.settle(&both).await.readings[1].admits);
        }
        assert!(!is_free(&server, &rule, &there));
        server.node(1).set_fault(ShardFault::None);
        server.pass(200 * MS).await;
        assert!(is_free(&server, &rule, &there), "abandoned: {abandons}");
        assert_eq!(server.shards.peek(&ten.take(&here, 0)).remaining, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_return_of_a_hold_is_repeated_until_it_is_confirmed() {
    for abandons in [false, true] {
        let (mut server, rule) = (Server::new(2), slot(OnFailure::Deny));
        server.run();
        let ten = Rule::ten(OnFailure::Deny);
        let (fails, there) = (server.value(&ten, 0, 0), server.value(&rule, 1, 0));
        server.node(0).set_fault(ShardFault::Stalled);
        // The hold is taken at once, the claim is refused after eight milliseconds, and then the return is lost.
        let both = generated(1, [ten.take(&fails, 1), rule.take(&there, 1)]);
        let stall = async {
            tokio::time::sleep(4 * MS).await;
            assert!(!is_free(&server, &rule, &there));
            server.node(1).set_fault(ShardFault::Stalled);
        };
        let patience = if abandons { 12 * MS } else { 100 * MS };
        let settled = tokio::time::timeout(patience, async { tokio::join!(server.settle(&both), stall) }).await;
        assert_eq!(settled.is_err(), abandons);
        (0..2).for_each(|shard| server.node(shard).set_fault(ShardFault::None));
        assert!(!is_free(&server, &rule, &there));
        server.pass(300 * MS).await;
        assert!(is_free(&server, &rule, &there), "abandoned: {abandons}");
    }
}
