//! Orders (resets and credits) are carried out immediately or not at all. A reset also clears local memory.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Charge, Claim, Mode, OnFailure, Once, Reading, Settlement, Source, Span, Wait};
use tollgate_store::Store;

use crate::guarded::world::{Rule, Server, claim};
use tollgate_store::sharded::ShardFault;

const SECOND: Duration = Duration::from_secs(1);

fn reset<'a>(rule: &'a Rule, value: &'a str) -> Charge<'a> {
    rule.asks(value, Ask::Reset, 0, Mode::Enforce)
}

fn credit<'a>(rule: &'a Rule, value: &'a str) -> Charge<'a> {
    rule.asks(value, Ask::Credit, 2, Mode::Enforce)
}

fn was_not_done(reading: &Reading, source: Source) {
    assert_eq!((reading.admits, reading.taken, reading.source), (false, 0, source));
    assert!(matches!(reading.wait, Wait::For(wait) if wait >= Reading::RETRY_AFTER), "{reading:?}");
}

#[tokio::test(start_paused = true)]
async fn orders_for_an_unavailable_shard_fail_and_are_not_done_later() {
    for policy in [OnFailure::Local, OnFailure::Allow, OnFailure::Deny] {
        let (mut server, rule) = (Server::new(1), Rule::ten(policy));
        assert!(server.one(rule.take("x", 4)).await.admits);
        let names = Rule::new("names", 1, Algorithm::FixedWindow, policy);
        let once = Once { key: names.key("n"), body: 1, terms: 0, keep: Span::from_secs(600) };
        // The first time its breaker is still closed.
        server.node(0).set_fault(ShardFault::Unreachable);
        was_not_done(&server.one(reset(&rule, "x")).await, Source::Assumed);
        was_not_done(&server.one(credit(&rule, "x")).await, Source::Assumed);
        server.lose(0).await;
        let mut readings: Vec<Reading> = server.settle(&claim([credit(&rule, "x")])).await.readings.to_vec();
        readings.extend(server.settle(&Claim { once: Some(once), ..claim([reset(&rule, "x")]) }).await.readings);
        assert_eq!(readings.len(), 2);
        readings.iter().for_each(|reading| was_not_done(reading, Source::Assumed));
        let mut shed = Settlement::default();
        server.guard.assume(&claim([reset(&rule, "x")]), Source::Shed, &mut shed);
        was_not_done(&shed.readings[0], Source::Shed);
        // Local memory continues to count.
        let counted = u64::from(policy == OnFailure::Local) * 3;
        server.one(rule.take("x", 3)).await;
        server.one(reset(&rule, "x")).await;
        server.one(credit(&rule, "x")).await;
        assert_eq!(server.guard.status().owed as u64, counted / 3, "{policy:?}");
        server.node(0).set_fault(ShardFault::None);
        server.run();
        server.pass(8 * SECOND).await;
        assert_eq!((server.guard.status().waiting, server.guard.status().owed), (0, 0));
        assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 6 - counted, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn local_units_that_were_not_sent_are_cleared() {
    let rules = [
        Rule::ten(OnFailure::Local),
        Rule::new("holds", 10, Algorithm::Concurrency, OnFailure::Local),
        Rule::new("log", 10, Algorithm::SlidingLog, OnFailure::Local),
    ];
    for rule in &rules {
        let mut server = Server::new(1);
        server.one(rule.take("x", 1)).await;
        server.node(0).set_fault(ShardFault::Unreachable);
        for value in ["x", "y"] {
            assert_eq!(server.one(rule.take(value, 1)).await.source, Source::Local);
        }
        server.node(0).set_fault(ShardFault::None);
        assert_eq!((server.guard.status().local, server.guard.status().owed), (2, 2));
        let reading = server.one(reset(rule, "x")).await;
        assert_eq!((reading.admits, reading.taken, reading.remaining, reading.source), (true, 1, 10, Source::Store));
        assert_eq!((server.guard.status().local, server.guard.status().owed), (1, 1), "the other caller's stays");
        server.run();
        server.pass(SECOND).await;
        assert_eq!(server.guard.status().owed, 0);
        let left = ["x", "y"].map(|value| server.shards.peek(&rule.take(value, 0)).remaining);
        assert_eq!(left, [10, 9], "{:?}", rule.limit.algorithm());
    }
}

#[tokio::test(start_paused = true)]
async fn each_location_is_reset_by_itself() {
    let (server, rule) = (Server::new(2), Rule::ten(OnFailure::Allow));
    let (here, away) = (server.value(&rule, 0, 0), server.value(&rule, 1, 0));
    server.settle(&claim([rule.take(&here, 3), rule.take(&away, 4)])).await;
    let both = server.settle(&claim([reset(&rule, &here), reset(&rule, &away)])).await.readings;
    assert_eq!(both.iter().map(|reading| (reading.admits, reading.taken)).collect::<Vec<_>>(), [(true, 3), (true, 4)]);
    server.settle(&claim([rule.take(&here, 3), rule.take(&away, 4)])).await;
    server.lose(1).await;
    let readings = server.settle(&claim([reset(&rule, &here), reset(&rule, &away)])).await.readings;
    assert_eq!((readings[0].admits, readings[0].taken, readings[0].source), (true, 3, Source::Store));
    was_not_done(&readings[1], Source::Assumed);
    let left = [&here, &away].map(|value| server.shards.peek(&rule.take(value, 0)).remaining);
    assert_eq!(left, [10, 6]);
}
