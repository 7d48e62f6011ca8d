//! Idempotent claims on several locations.

use std::time::Duration;

use tollgate_core::{Algorithm, Claim, OnFailure, Once, Reading, Replay, Settlement, Source, Span, Verdict, Wait};
use tollgate_store::Circuit;

use crate::guarded::world::{Rule, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const MS: Duration = Duration::from_millis(1);
const KEEP: Span = Span::from_secs(600);
const TERMS: u64 = 3;
const AGAIN: Replay = Replay::Again { terms: TERMS, passed: true };

/// Takes units from shards 1 and 2. The record is in shard 0, from which it takes nothing.
struct Order {
    rule: Rule,
    names: Rule,
    name: String,
    values: [String; 2],
}

impl Order {
    fn new(server: &Server) -> Order {
        let (rule, names) =
            (Rule::ten(OnFailure::Deny), Rule::new("names", 1, Algorithm::FixedWindow, OnFailure::Deny));
        let (name, values) = (server.value(&names, 0, 0), [1, 2].map(|shard| server.value(&rule, shard, 0)));
        Order { rule, names, name, values }
    }

    fn claim(&self, units: u64, body: u64) -> Claim<'_> {
        let once = Once { key: self.names.key(&self.name), body, terms: TERMS, keep: KEEP };
        Claim { once: Some(once), ..claim(self.values.iter().map(|value| self.rule.take(value, units))) }
    }

    fn used(&self, server: &Server) -> [u64; 2] {
        [0, 1].map(|at| 10 - server.shards.peek(&self.rule.take(&self.values[at], 0)).remaining)
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_name_is_answered_alike() {
    let server = Server::new(3);
    let order = Order::new(&server);
    let first = server.settle(&order.claim(2, 7)).await;
    assert_eq!((first.replay, first.readings.len(), order.used(&server)), (Replay::First, 2, [2, 2]));
    for _ in 0..3 {
        skip(server.shards.clock(), 1_000 * MS);
        let again = server.settle(&order.claim(2, 7)).await;
        assert_eq!(again, Settlement { replay: AGAIN, ..first.clone() });
    }
    let conflict = server.settle(&order.claim(2, 8)).await;
    assert_eq!((conflict.replay, conflict.readings.len()), (Replay::Conflict, 2));
    assert!(conflict.readings.iter().all(|reading| !reading.admits && reading.taken == 0));
    assert_eq!(order.used(&server), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_with_other_charges_gets_the_first_answer() {
    let server = Server::new(3);
    let order = Order::new(&server);
    let first = server.settle(&order.claim(2, 7)).await;
    // As after a change of the rules: one charge fewer, one more, only the one with the record, and none.
    let (mut fewer, mut more, mut none) = (order.claim(2, 7), order.claim(2, 7), order.claim(2, 7));
    fewer.charges.pop();
    more.charges.push(order.rule.take(&order.values[0], 1));
    none.charges.clear();
    let home = Claim { charges: [order.names.take(&order.name, 1)].into_iter().collect(), ..order.claim(2, 7) };
    for mut other in [fewer, more, none, home] {
        other.once.as_mut().unwrap().terms = 99;
        assert_eq!(server.settle(&other).await, Settlement { replay: AGAIN, ..first.clone() });
    }
    assert_eq!(order.used(&server), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn duplicates_at_the_same_time_pay_once() {
    let server = Server::new(3);
    let order = Order::new(&server);
    let mut all = Vec::new();
    for _ in 0..50 {
        all.push(Box::pin(async { server.settle(&order.claim(1, 7)).await }));
    }
    // All of them start before any continues.
    let mut settlements = Vec::new();
    while !all.is_empty() {
        let mut waiting = Vec::new();
        for mut settling in all {
            match tokio::time::timeout(Duration::ZERO, &mut settling).await {
                Ok(settlement) => settlements.push(settlement),
                Err(_) => waiting.push(settling),
            }
        }
        all = waiting;
        tokio::time::sleep(MS).await;
    }
    let first: Vec<_> = settlements.iter().filter(|settlement| settlement.replay == Replay::First).collect();
    assert_eq!((first.len(), order.used(&server)), (1, [1, 1]));
    assert!(settlements.iter().all(|settlement| settlement.readings == first[0].readings));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_decided_anew() {
    let server = Server::new(3);
    let order = Order::new(&server);
    server.one(order.rule.take(&order.values[1], 10)).await;
    skip(server.shards.clock(), 30_000 * MS);
    let refused = server.settle(&order.claim(1, 7)).await;
    assert!(!refused.readings[1].admits && refused.readings[0].taken == 0);
    assert_eq!(refused.readings[1].wait, Wait::For(Span::from_secs(30)));
    assert_eq!(order.used(&server), [0, 10]);
    // No record of it is left, nor a pending one.
    assert_eq!(server.settle(&order.claim(1, 7)).await, refused);
    skip(server.shards.clock(), 30_000 * MS);
    assert_eq!(server.settle(&order.claim(1, 8)).await.replay, Replay::First);
    assert_eq!(order.used(&server), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_at_home_is_the_whole_answer_too() {
    let server = Server::new(3);
    let order = Order::new(&server);
    let home = server.value(&order.rule, 0, 0);
    server.one(order.rule.take(&home, 10)).await;
    let mut claim = order.claim(1, 7);
    // The charge in the record's shard may or may not live next to the record; it is sent first.
    claim.charges.push(order.rule.take(&home, 1));
    let refused = server.settle(&claim).await;
    assert_eq!(refused.readings.len(), 3);
    assert!(!Verdict::reach(&claim, &refused).allowed);
    assert_eq!(server.settle(&claim).await, refused);
    assert_eq!(order.used(&server), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_somebody_else_does_not_finish_is_refused_for_now() {
    let server = Server::new(3);
    let order = Order::new(&server);
    server.node(2).set_fault(ShardFault::Stalled);
    let gone = tokio::time::timeout(4 * MS, server.settle(&order.claim(1, 7))).await;
    assert!(gone.is_err(), "whoever settles it goes away");
    server.node(2).set_fault(ShardFault::None);
    let late = async {
        tokio::time::sleep(6 * MS).await;
        skip(server.shards.clock(), 8 * MS);
    };
    let claim = order.claim(1, 7);
    let (refused, ()) = tokio::join!(server.settle(&claim), late);
    assert_eq!(refused.readings.len(), 2);
    for reading in &refused.readings {
        let answer = (reading.admits, reading.wait, reading.source);
        assert_eq!(answer, (false, Wait::For(Reading::RETRY_AFTER), Source::Store));
    }
    let status = server.guard.status();
    assert_eq!(status.shards[0].errors, [("timeout", 0), ("unreachable", 0), ("refused", 0), ("late", 0)]);
    // The record is pending for at most a second.
    skip(server.shards.clock(), 1_000 * MS);
    assert_eq!(server.settle(&order.claim(1, 7)).await.replay, Replay::First);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_there_is_no_time_for_is_written_later() {
    let mut server = Server::new(3);
    let order = Order::new(&server);
    server.node(2).set_fault(ShardFault::Stalled);
    let late = async {
        tokio::time::sleep(6 * MS).await;
        skip(server.shards.clock(), 8 * MS);
    };
    let claim = order.claim(1, 7);
    let (first, ()) = tokio::join!(server.settle(&claim), late);
    assert_eq!(server.guard.status().waiting, 2, "what was taken, and the verdict");
    server.node(2).set_fault(ShardFault::None);
    server.run();
    server.pass(100 * MS).await;
    assert_eq!((server.guard.status().waiting, order.used(&server)), (0, [0, 0]));
    assert!(!Verdict::reach(&claim, &first).allowed);
    // The pending record is gone, and the shards work again.
    assert_eq!(server.settle(&claim).await.replay, Replay::First);
    assert_eq!(order.used(&server), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn without_the_home_of_the_record_it_is_settled_all_the_same() {
    let server = Server::new(3);
    let order = Order::new(&server);
    for used in 1..=5 {
        server.node(0).set_fault(ShardFault::Unreachable);
        let settlement = server.settle(&order.claim(1, 7)).await;
        assert_eq!((settlement.replay, order.used(&server)), (Replay::First, [used, used]));
        assert!(settlement.readings.iter().all(|reading| reading.source == Source::Store));
        skip(server.shards.clock(), 10 * MS);
    }
    assert_eq!(server.circuit(0), Circuit::Open);
    server.settle(&order.claim(1, 7)).await;
    assert_eq!(order.used(&server), [6, 6]);
}
