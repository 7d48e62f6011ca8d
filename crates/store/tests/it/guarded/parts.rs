//! Claims on several locations: all or nothing, whatever fails.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Charge, Mode, OnFailure, Source, Span, Verdict, Wait};
use tollgate_store::{Circuit, DenyCache, Store as _};

use crate::guarded::world::{Rule, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const MS: Duration = Duration::from_millis(1);

fn used(server: &Server, charge: &Charge<'_>) -> u64 {
    charge.limit.amount() - server.shards.peek(charge).remaining
}

#[tokio::test(start_paused = true)]
async fn one_without_room_stops_all_and_what_was_taken_is_given_back() {
    let (server, rule) = (Server::new(3), Rule::ten(OnFailure::Deny));
    let [a, b, c] = [0, 1, 2].map(|shard| server.value(&rule, shard, 0));
    server.one(rule.take(&b, 10)).await;
    let refused = claim([
        rule.take(&a, 3),
        rule.take(&b, 1),
        rule.asks(&c, Ask::UpTo, 5, Mode::Enforce),
        rule.asks(&c, Ask::Exactly, 2, Mode::Soft),
        rule.asks(&c, Ask::Regardless, 1, Mode::Enforce),
    ]);
    let settlement = server.settle(&refused).await;
    let readings: Vec<_> = settlement.readings.iter().map(|it| (it.admits, it.taken, it.remaining)).collect();
    assert_eq!(readings, [(true, 0, 10), (false, 0, 0), (true, 0, 9), (true, 0, 9), (true, 1, 9)]);
    assert!(settlement.readings.iter().all(|reading| reading.source == Source::Store));
    let counts = refused.charges.iter().map(|charge| used(&server, charge)).collect::<Vec<_>>();
    assert_eq!(counts, [0, 10, 1, 1, 1], "only the fact stays");
    let passes = claim([rule.take(&a, 3), rule.take(&c, 9)]);
    assert!(Verdict::reach(&passes, &server.settle(&passes).await).allowed);
    assert_eq!((used(&server, &rule.take(&a, 0)), used(&server, &rule.take(&c, 0))), (3, 10));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_held_back() {
    let server = Server::new(2);
    let paced = Rule::new("paced", 10, Algorithm::Bucket { burst: 10, paced: true }, OnFailure::Deny);
    let rule = Rule::ten(OnFailure::Deny);
    let (leaky, full) = (server.value(&paced, 0, 0), server.value(&rule, 1, 0));
    server.one(paced.take(&leaky, 5)).await;
    server.one(rule.take(&full, 10)).await;
    for units in [0, 1] {
        let settlement = server.settle(&claim([paced.take(&leaky, units), rule.take(&full, 1)])).await;
        let readings: Vec<_> = settlement.readings.iter().map(|it| (it.admits, it.taken, it.delay)).collect();
        assert_eq!(readings, [(true, 0, Span::ZERO), (false, 0, Span::ZERO)], "{units} units");
    }
    assert!(server.one(paced.take(&leaky, 0)).await.delay > Span::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_of_several_quotas_is_enough_wherever_they_are() {
    let (server, rule) = (Server::new(3), Rule::ten(OnFailure::Deny));
    let [a, b, c] = [0, 1, 2].map(|shard| server.value(&rule, shard, 0));
    let quota = |value| rule.asks(value, Ask::Exactly, 4, Mode::AnyOf);
    let both = claim([quota(&a), quota(&b), rule.take(&c, 1)]);
    server.one(rule.take(&b, 8)).await;
    for (used_a, used_b, used_c, allowed) in [(4, 8, 1, true), (8, 8, 2, true), (8, 8, 2, false)] {
        let settlement = server.settle(&both).await;
        assert_eq!(Verdict::reach(&both, &settlement).allowed, allowed, "{settlement:?}");
        let counts = [&a, &b, &c].map(|value| used(&server, &rule.take(value, 0)));
        assert_eq!(counts, [used_a, used_b, used_c]);
    }
    // Charges that are enforced along with a quota without room pay nevertheless, because another quota has room.
    let combined = claim([rule.asks(&c, Ask::Exactly, 4, Mode::AnyOf), quota(&b), rule.take(&b, 1)]);
    let settlement = server.settle(&combined).await;
    let taken: Vec<u64> = settlement.readings.iter().map(|reading| reading.taken).collect();
    assert_eq!(taken, [4, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_certain_takes_nothing_anywhere() {
    let (server, rule) = (Server::new(2), Rule::ten(OnFailure::Deny));
    let local = Rule::new("local", 2, Algorithm::FixedWindow, OnFailure::Local);
    let (here, away, spent) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0), server.value(&local, 1, 0));
    server.lose(1).await;
    server.one(local.take(&spent, 2)).await;
    for refusing in [rule.take(&away, 1), local.take(&spent, 1)] {
        let calls = server.node(0).calls();
        let refused = claim([rule.take(&here, 3), refusing]);
        let settlement = server.settle(&refused).await;
        assert!(!Verdict::reach(&refused, &settlement).allowed);
        assert_eq!((settlement.readings[0].admits, settlement.readings[0].remaining), (true, 10));
        assert_eq!(server.node(0).calls(), calls + 1, "a peek need not be given back");
        assert_eq!(used(&server, &refused.charges[0]), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_is_read_by_its_policy_and_the_rest_follows_the_vote() {
    for (fault, reason) in
        [(ShardFault::Unreachable, "unreachable"), (ShardFault::Error, "refused"), (ShardFault::Stalled, "timeout")]
    {
        let server = Server::new(2);
        for (on_failure, source, passes) in [
            (OnFailure::Deny, Source::Assumed, false),
            (OnFailure::Allow, Source::Assumed, true),
            (OnFailure::Local, Source::Local, true),
        ] {
            let (deny, rule) = (Rule::ten(OnFailure::Deny), Rule::new("other", 10, Algorithm::SlidingLog, on_failure));
            let (here, fails) = (server.value(&deny, 0, 0), server.value(&rule, 1, 0));
            server.node(1).set_fault(fault);
            let before = (used(&server, &deny.take(&here, 0)), server.fail_open(reason));
            let both = claim([deny.take(&here, 1), rule.take(&fails, 1)]);
            let settlement = server.settle(&both).await;
            assert_eq!(Verdict::reach(&both, &settlement).allowed, passes, "{fault:?} {on_failure:?}");
            assert_eq!((settlement.readings[0].source, settlement.readings[1].source), (Source::Store, source));
            let after = (used(&server, &deny.take(&here, 0)), server.fail_open(reason));
            assert_eq!(after, (before.0 + u64::from(passes), before.1 + u64::from(passes)));
            server.node(1).set_fault(ShardFault::None);
            assert_eq!(used(&server, &rule.take(&fails, 0)), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_local_memory_took_is_given_back_too() {
    let (server, deny) = (Server::new(2), Rule::ten(OnFailure::Deny));
    let local = Rule::new("local", 10, Algorithm::Bucket { burst: 10, paced: false }, OnFailure::Local);
    let (full, away) = (server.value(&deny, 0, 0), server.value(&local, 1, 0));
    server.one(deny.take(&full, 10)).await;
    server.lose(1).await;
    let refused = claim([local.take(&away, 4), deny.take(&full, 1)]);
    let settlement = server.settle(&refused).await;
    assert_eq!((settlement.readings[0].taken, settlement.readings[0].remaining), (0, 10));
    assert!(matches!(settlement.readings[1].wait, Wait::For(_)));
    assert_eq!(server.one(local.take(&away, 0)).await.remaining, 10);
    assert_eq!(server.guard.status().owed, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_who_went_away_took_is_given_back() {
    let (mut server, rule) = (Server::new(2), Rule::ten(OnFailure::Deny));
    let (here, fails) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0));
    server.node(1).set_fault(ShardFault::Stalled);
    let both = claim([rule.take(&here, 3), rule.take(&fails, 1)]);
    assert!(tokio::time::timeout(4 * MS, server.settle(&both)).await.is_err(), "the caller waits no longer");
    assert_eq!((used(&server, &both.charges[0]), server.guard.status().waiting), (3, 1));
    server.run();
    server.pass(100 * MS).await;
    assert_eq!((used(&server, &both.charges[0]), server.guard.status().waiting), (0, 0));
    server.pass(200 * MS).await;
    assert_eq!(server.node(0).calls(), 2, "it was given back once");
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_time_to_give_back_waits_for_its_shard() {
    let (mut server, rule) = (Server::new(2), Rule::ten(OnFailure::Deny));
    let (here, fails) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0));
    server.node(1).set_fault(ShardFault::Stalled);
    let both = claim([rule.take(&here, 3), rule.take(&fails, 1)]);
    let late = async {
        tokio::time::sleep(6 * MS).await;
        skip(server.shards.clock(), 8 * MS);
    };
    let (settlement, ()) = tokio::join!(server.settle(&both), late);
    assert!(!Verdict::reach(&both, &settlement).allowed);
    assert_eq!((settlement.readings[0].taken, server.guard.status().waiting), (0, 1));
    server.lose(0).await;
    server.run();
    server.pass(1_000 * MS).await;
    assert_eq!((server.circuit(0), server.guard.status().waiting), (Circuit::Open, 1));
    server.node(0).set_fault(ShardFault::None);
    server.pass(6_000 * MS).await;
    assert_eq!((used(&server, &both.charges[0]), server.guard.status().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_give_back_that_makes_no_difference_is_dropped() {
    let (mut server, rule) = (Server::new(2), Rule::ten(OnFailure::Deny));
    let (here, fails) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0));
    server.node(1).set_fault(ShardFault::Stalled);
    let both = claim([rule.take(&here, 3), rule.take(&fails, 1)]);
    assert!(tokio::time::timeout(4 * MS, server.settle(&both)).await.is_err());
    skip(server.shards.clock(), Duration::from_secs(121));
    let calls = server.node(0).calls();
    server.run();
    server.pass(100 * MS).await;
    assert_eq!((server.node(0).calls(), server.guard.status().waiting), (calls, 0));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_one_shard_holds_up_no_other() {
    let (mut server, rule) = (Server::new(3), Rule::ten(OnFailure::Deny));
    let local = Rule::new("local", 10, Algorithm::FixedWindow, OnFailure::Local);
    let (here, fails, counted) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0), server.value(&local, 2, 0));
    server.node(1).set_fault(ShardFault::Stalled);
    for _ in 0..100 {
        let both = claim([
            rule.asks(&here, Ask::UpTo, 1, Mode::Enforce),
            rule.asks(&here, Ask::Exactly, 1, Mode::Soft),
            rule.take(&fails, 1),
        ]);
        assert!(tokio::time::timeout(4 * MS, server.settle(&both)).await.is_err());
    }
    assert_eq!(server.guard.status().waiting, 100);
    server.lose(0).await;
    server.node(2).set_fault(ShardFault::Unreachable);
    server.one(local.take(&counted, 4)).await;
    server.node(2).set_fault(ShardFault::None);
    server.run();
    server.pass(100 * MS).await;
    assert_eq!((used(&server, &local.take(&counted, 0)), server.guard.status().waiting), (4, 100));
    server.node(0).set_fault(ShardFault::None);
    server.pass(6_500 * MS).await;
    assert_eq!((used(&server, &rule.take(&here, 0)), server.guard.status().waiting), (0, 0));
}

/// A limit of each caller, and one that all share, on different shards.
fn own_and_shared(server: &Server) -> (Rule, Rule, String, String) {
    let own = Rule::of_callers("own", 200, Algorithm::FixedWindow, OnFailure::Deny);
    let shared = Rule::new("shared", 1_000, Algorithm::FixedWindow, OnFailure::Deny);
    let (mine, all) = (server.value(&own, 0, 0), server.value(&shared, 1, 0));
    (own, shared, mine, all)
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_asks_for_more_than_a_limit_holds_takes_nothing_anywhere() {
    let server = Server::new(2);
    let (own, shared, mine, all) = own_and_shared(&server);
    let doomed = claim([own.take(&mine, 900), shared.take(&all, 900)]);
    let settlement = server.settle(&doomed).await;
    let readings: Vec<_> = settlement.readings.iter().map(|it| (it.admits, it.taken, it.remaining)).collect();
    assert_eq!(readings, [(false, 0, 200), (true, 0, 1_000)]);
    assert_eq!(Verdict::reach(&doomed, &settlement).wait, Wait::Forever);
    assert_eq!((server.node(0).calls(), server.node(1).calls()), (1, 1), "there was nothing to give back");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_will_probably_refuse_is_settled_before_the_others() {
    let server = Server::new(2);
    let (own, shared, mine, all) = own_and_shared(&server);
    for (used, refusing) in [(claim([own.take(&mine, 150)]), 0), (claim([shared.take(&all, 950)]), 1)] {
        server.settle(&used).await;
        // The first claim finds out what is left, the second knows.
        for known in [false, true] {
            let calls = [0, 1].map(|shard| server.node(shard).calls());
            let both = claim([own.take(&mine, 60), shared.take(&all, 60)]);
            let settlement = server.settle(&both).await;
            assert!(!Verdict::reach(&both, &settlement).allowed);
            let other = 1 - refusing;
            assert_eq!(server.node(refusing as u32).calls(), calls[refusing] + 1);
            let returned = server.node(other as u32).calls() - calls[other] - 1;
            assert!(!known || returned == 0, "the other part took units although the claim was bound to be refused");
        }
        server.settle(&claim([own.asks(&mine, Ask::Reset, 0, Mode::Enforce)])).await;
        server.settle(&claim([shared.asks(&all, Ask::Reset, 0, Mode::Enforce)])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_room_is_tight_the_callers_own_part_is_settled_first() {
    let server = Server::new(2);
    let (own, shared, mine, all) = own_and_shared(&server);
    server.settle(&claim([own.take(&mine, 1), shared.take(&all, 900)])).await;
    server.node(0).set_fault(ShardFault::Stalled);
    let both = claim([own.take(&mine, 1), shared.take(&all, 1)]);
    let calls = server.node(1).calls();
    assert!(tokio::time::timeout(4 * MS, server.settle(&both)).await.is_err());
    assert_eq!(server.node(1).calls(), calls, "the shared counter was called before the caller's own had answered");
    server.node(0).set_fault(ShardFault::None);
    let settlement = server.settle(&both).await;
    assert!(Verdict::reach(&both, &settlement).allowed);
    assert_eq!((used(&server, &both.charges[0]), used(&server, &both.charges[1])), (2, 901));
}

#[tokio::test(start_paused = true)]
async fn refusals_that_may_be_over_at_once_are_not_cached() {
    let server = Server::new(2);
    let (own, shared, mine, all) = own_and_shared(&server);
    let cache = DenyCache::with_clock(server.guard.clone(), server.shards.clock().clone());
    // Until a claim has met it together with another location, a shared counter is like any other.
    cache.settle(&claim([shared.take(&all, 1_000)])).await;
    cache.settle(&claim([shared.take(&all, 1)])).await;
    assert_eq!(cache.denials(), 1);
    cache.settle(&claim([shared.asks(&all, Ask::Reset, 0, Mode::Enforce)])).await;
    assert_eq!(cache.denials(), 0);
    cache.settle(&claim([own.take(&mine, 1), shared.take(&all, 999)])).await;
    cache.settle(&claim([own.take(&mine, 1), shared.take(&all, 2)])).await;
    // Also for callers whose claims live in one location.
    cache.settle(&claim([shared.take(&all, 2)])).await;
    assert_eq!(cache.denials(), 0);
    // What a caller's own counter refuses is cached as before.
    cache.settle(&claim([own.take(&mine, 200), shared.take(&all, 1)])).await;
    assert_eq!(cache.denials(), 1);
}
