//! Settlements: delivered when the store is available, whatever fails meanwhile, and never twice.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, ClaimId, Mode, OnFailure, Once, Replay, Settlement, Source, Span};
use tollgate_store::{Circuit, Clock, GuardConfig, ManualClock, Store};

use crate::guarded::world::{Rule, START, Server, claim, skip};
use tollgate_store::sharded::{MemoryShards, ShardFault};

const MS: Duration = Duration::from_millis(1);
const KEEP: Span = Span::from_secs(600);
/// The units of each counter before the settlement.
const TAKEN: u64 = 5;

/// The settlement of a request that took units from two counters: it gives back some of one, and debits more of the
/// other.
struct Ending {
    rule: Rule,
    names: Rule,
    name: String,
    values: [String; 2],
    keep: Span,
}

impl Ending {
    /// With its record and its counters in these shards.
    async fn in_shards(server: &Server, home: u32, values: [u32; 2]) -> Ending {
        let rule = Rule::new("tokens", 100, Algorithm::SlidingLog, OnFailure::Deny);
        let names = Rule::new("names", 1, Algorithm::FixedWindow, OnFailure::Deny);
        let values = [0, 1].map(|at| server.value(&rule, values[at], at));
        let ending = Ending { name: server.value(&names, home, 0), values, rule, names, keep: KEEP };
        for value in &ending.values {
            assert!(server.one(ending.rule.take(value, TAKEN)).await.admits);
        }
        ending
    }

    fn claim(&self, body: u64) -> Claim<'_> {
        let back = self.rule.asks(&self.values[0], Ask::Return { taken_at: START }, 3, Mode::Enforce);
        let more = self.rule.asks(&self.values[1], Ask::Regardless, 4, Mode::Enforce);
        let once = Once { key: self.names.key(&self.name), body, terms: 0, keep: self.keep };
        Claim { id: ClaimId(7), once: Some(once), ..claim([back, more]) }
    }

    fn used(&self, server: &Server) -> [u64; 2] {
        [0, 1].map(|at| 100 - server.shards.peek(&self.rule.take(&self.values[at], 0)).remaining)
    }
}

const BEFORE: [u64; 2] = [TAKEN, TAKEN];
const AFTER: [u64; 2] = [TAKEN - 3, TAKEN + 4];

fn server(shards: usize, slots: u16) -> Server {
    let config = GuardConfig { cool_down: 500 * MS, ..GuardConfig::default() };
    Server::over(MemoryShards::new(shards, slots, ManualClock::at(START)), config)
}

/// One location; one shard with slots; record and counters in separate shards; the record with one of the counters.
const LAYOUTS: [(usize, u16, u32, [u32; 2]); 5] =
    [(1, 1, 0, [0, 0]), (1, 1_024, 0, [0, 0]), (3, 1_024, 0, [1, 2]), (2, 1_024, 0, [0, 1]), (2, 2, 0, [0, 1])];

async fn come_back(server: &Server, shard: u32) {
    server.node(shard).set_fault(ShardFault::None);
    for _ in 0..700 {
        server.pass(10 * MS).await;
        if server.circuit(shard as usize) == Circuit::Closed {
            return;
        }
    }
    panic!("the shard did not come back");
}

fn is_again(settlement: &Settlement) -> bool {
    matches!(settlement.replay, Replay::Again { passed: true, .. })
}

#[tokio::test(start_paused = true)]
async fn they_take_effect_once_without_faults() {
    for (shards, slots, home, values) in LAYOUTS {
        let server = server(shards, slots);
        let ending = Ending::in_shards(&server, home, values).await;
        let first = server.settle(&ending.claim(1)).await;
        let read: Vec<_> = first.readings.iter().map(|one| (one.taken, one.remaining, one.source)).collect();
        assert_eq!(read, [(3, 98, Source::Store), (4, 91, Source::Store)]);
        assert_eq!((first.replay, ending.used(&server)), (Replay::First, AFTER));
        skip(server.shards.clock(), 10 * MS);
        let again = server.settle(&ending.claim(1)).await;
        assert_eq!((is_again(&again), &again.readings, again.at), (true, &first.readings, first.at));
        let conflict = server.settle(&ending.claim(2)).await;
        assert_eq!((conflict.replay, conflict.readings.len()), (Replay::Conflict, 2));
        assert_eq!((ending.used(&server), server.guard.status().waiting), (AFTER, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn they_wait_for_a_shard_that_is_away() {
    for (shards, slots, home, values) in LAYOUTS {
        for lost in 0..shards as u32 {
            let mut server = server(shards, slots);
            server.run();
            let ending = Ending::in_shards(&server, home, values).await;
            server.lose(lost).await;
            for _ in 0..4 {
                let settled = server.settle(&ending.claim(1)).await;
                assert_ne!(settled.replay, Replay::Conflict);
                for (reading, at) in settled.readings.iter().zip(values) {
                    let expected = if lost == home || lost == at { Source::Assumed } else { Source::Store };
                    assert!(reading.admits && reading.source == expected, "{reading:?}");
                }
                server.pass(20 * MS).await;
            }
            let conflict = server.settle(&ending.claim(2)).await;
            assert_eq!((conflict.replay, conflict.readings.len()), (Replay::Conflict, 2), "shard {lost} is away");
            if lost == home {
                assert_eq!(ending.used(&server), BEFORE, "nothing is sent without the word of the record's location");
            }
            let status = server.guard.status();
            assert_eq!((status.waiting, status.owed), (1, 0), "shard {lost} of {shards} is away");
            come_back(&server, lost).await;
            server.pass(200 * MS).await;
            assert_eq!(ending.used(&server), AFTER, "shard {lost} of {shards} was away");
            assert!(is_again(&server.settle(&ending.claim(1)).await));
            assert_eq!(server.settle(&ending.claim(2)).await.replay, Replay::Conflict);
            server.pass(Duration::from_secs(2)).await;
            let status = server.guard.status();
            assert_eq!((ending.used(&server), status.waiting, status.dropped), (AFTER, 0, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_try_that_fails_is_tried_again_whether_it_was_heard_or_not() {
    for fault in [ShardFault::Unreachable, ShardFault::Error, ShardFault::Stalled, ShardFault::Mute] {
        for (shards, slots, home, values) in LAYOUTS {
            for lost in 0..shards as u32 {
                for (repeats, tends) in [(true, true), (true, false), (false, true)] {
                    let mut server = server(shards, slots);
                    let ending = Ending::in_shards(&server, home, values).await;
                    server.node(lost).set_fault(fault);
                    let settled = server.settle(&ending.claim(1)).await;
                    assert!(settled.readings.iter().all(|reading| reading.admits));
                    server.node(lost).set_fault(ShardFault::None);
                    if repeats {
                        server.settle(&ending.claim(1)).await;
                        assert_eq!(ending.used(&server), AFTER, "{fault:?} of shard {lost} of {shards}");
                        assert_eq!(server.guard.status().waiting, 0, "a delivered settlement is not in the outbox");
                    }
                    if tends {
                        server.run();
                        server.pass(200 * MS).await;
                    }
                    let status = server.guard.status();
                    let found = (ending.used(&server), status.waiting, status.dropped);
                    assert_eq!(found, (AFTER, 0, 0), "{fault:?} of shard {lost} of {shards}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_before_the_answer_has_said_it_all_the_same() {
    for fault in [ShardFault::Stalled, ShardFault::Mute] {
        for (shards, slots, home, values) in LAYOUTS {
            for slow in 0..shards as u32 {
                let mut server = server(shards, slots);
                let ending = Ending::in_shards(&server, home, values).await;
                server.node(slow).set_fault(fault);
                let claim = ending.claim(1);
                assert!(tokio::time::timeout(4 * MS, server.settle(&claim)).await.is_err());
                server.node(slow).set_fault(ShardFault::None);
                server.run();
                server.pass(200 * MS).await;
                assert_eq!(ending.used(&server), AFTER, "{fault:?} of shard {slow} of {shards}");
            }
        }
    }
}

/// A server that crashes half way leaves only what it has sent. A repetition on another server completes the
/// settlement.
#[tokio::test(start_paused = true)]
async fn another_server_completes_what_one_has_begun() {
    for fault in [ShardFault::Stalled, ShardFault::Mute, ShardFault::Unreachable] {
        for (shards, slots, home, values) in LAYOUTS {
            for slow in 0..shards as u32 {
                let dies = server(shards, slots);
                let ending = Ending::in_shards(&dies, home, values).await;
                dies.node(slow).set_fault(fault);
                let claim = ending.claim(1);
                let _ = tokio::time::timeout(4 * MS, dies.settle(&claim)).await;
                dies.node(slow).set_fault(ShardFault::None);
                let other = Server::over(dies.shards.clone(), GuardConfig::default());
                drop(dies);
                let settled = other.settle(&claim).await;
                assert!(settled.readings.iter().all(|reading| reading.source == Source::Store));
                assert_eq!(ending.used(&other), AFTER, "{fault:?} of shard {slow} of {shards}");
                assert_eq!(other.settle(&ending.claim(2)).await.replay, Replay::Conflict);
            }
        }
    }
}

/// Rules that changed half way: the recorded answer is returned, and nothing else is sent.
#[tokio::test(start_paused = true)]
async fn an_answer_by_other_rules_is_returned_unchanged() {
    let server = server(3, 1_024);
    let ending = Ending::in_shards(&server, 0, [1, 2]).await;
    let mut none = ending.claim(1);
    none.charges.clear();
    assert_eq!(server.settle(&none).await.replay, Replay::First);
    // Now there is one in the record's own location, and two elsewhere.
    let mut three = ending.claim(1);
    three.charges.push(ending.names.asks(&ending.name, Ask::Regardless, 1, Mode::Enforce));
    let answer = server.settle(&three).await;
    assert_eq!((is_again(&answer), answer.readings.len(), ending.used(&server)), (true, 0, BEFORE));
}

/// The outcome is unknown, and when the shard is back its record may have expired.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_not_retried_after_its_record_may_have_expired() {
    let mut server = server(1, 1);
    let mut ending = Ending::in_shards(&server, 0, [0, 0]).await;
    ending.keep = Span::from_secs(10);
    server.node(0).set_fault(ShardFault::Mute);
    server.settle(&ending.claim(1)).await;
    server.lose(0).await;
    server.run();
    server.pass(Duration::from_secs(6)).await;
    come_back(&server, 0).await;
    let calls = server.node(0).calls();
    server.pass(Duration::from_secs(2)).await;
    assert_eq!((server.node(0).calls(), server.guard.status().waiting), (calls, 1), "it is not sent, and waits");
    server.pass(Duration::from_secs(3)).await;
    let status = server.guard.status();
    assert_eq!((ending.used(&server), status.waiting, status.dropped), (AFTER, 0, 1));
}

/// A settlement that was certainly not received is delivered after any time, as long as it has an effect.
#[tokio::test(start_paused = true)]
async fn an_unsent_settlement_is_delivered_after_records_have_expired() {
    for (away, delivered) in [(30, true), (130, false)] {
        let mut server = server(1, 1);
        let mut ending = Ending::in_shards(&server, 0, [0, 0]).await;
        ending.keep = Span::from_secs(2);
        server.lose(0).await;
        server.settle(&ending.claim(1)).await;
        server.run();
        server.pass(Duration::from_secs(away)).await;
        let calls = server.node(0).calls();
        come_back(&server, 0).await;
        server.pass(1_000 * MS).await;
        let status = server.guard.status();
        assert_eq!((status.waiting, status.dropped), (0, u64::from(!delivered)));
        assert_eq!(server.node(0).calls() - calls, u64::from(delivered), "after {away} seconds");
        if delivered {
            assert_eq!(ending.used(&server), AFTER);
        }
    }
}

/// The store does not know yet what a check took here while the store was unavailable: a refund must not arrive
/// first.
#[tokio::test(start_paused = true)]
async fn local_units_are_sent_before_they_are_given_back() {
    for is_away in [true, false] {
        let mut server = server(1, 1);
        let rule = Rule::new("tokens", 100, Algorithm::FixedWindow, OnFailure::Local);
        server.node(0).set_fault(ShardFault::Unreachable);
        if is_away {
            server.lose(0).await;
        }
        let check = claim([rule.take("x", 80)]);
        assert_eq!(server.settle(&check).await.readings[0].source, Source::Local);
        let taken_at = server.shards.clock().now();
        let once = Once { key: rule.key("order"), body: 1, terms: 0, keep: KEEP };
        let back = rule.asks("x", Ask::Return { taken_at }, 70, Mode::Enforce);
        let settle = Claim { id: check.id, once: Some(once), ..claim([back]) };
        if !is_away {
            // It was unavailable for a moment, and the debit was not sent yet.
            server.node(0).set_fault(ShardFault::None);
        }
        assert_eq!(server.settle(&settle).await.readings[0].source, Source::Assumed);
        server.run();
        come_back(&server, 0).await;
        server.pass(300 * MS).await;
        server.settle(&settle).await;
        let used = 100 - server.shards.peek(&rule.take("x", 0)).remaining;
        assert_eq!((used, server.guard.status().waiting), (10, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_held_here_is_free_at_once() {
    let mut server = server(1, 1);
    let rule = Rule::new("holds", 1, Algorithm::Concurrency, OnFailure::Local);
    server.lose(0).await;
    let hold = claim([rule.take("x", 1)]);
    assert!(server.settle(&hold).await.readings[0].admits && !server.one(rule.take("x", 1)).await.admits);
    let once = Once { key: rule.key("order"), body: 1, terms: 0, keep: KEEP };
    let release = rule.asks("x", Ask::Return { taken_at: START }, 1, Mode::Enforce);
    let released = server.settle(&Claim { id: hold.id, once: Some(once), ..claim([release]) }).await;
    assert_eq!(released.readings[0].source, Source::Assumed);
    assert!(server.one(rule.take("x", 1)).await.admits);
    server.run();
    come_back(&server, 0).await;
    server.pass(300 * MS).await;
    assert_eq!(server.shards.peek(&rule.take("x", 0)).remaining, 0, "the second is delivered, the first is not");
}

#[tokio::test(start_paused = true)]
async fn settlements_without_time_are_delivered_later() {
    for (shards, slots, home, values) in LAYOUTS {
        let mut server = server(shards, slots);
        let ending = Ending::in_shards(&server, home, values).await;
        let mut settlement = Settlement::default();
        for source in [Source::Shed, Source::Assumed] {
            server.guard.assume(&ending.claim(1), source, &mut settlement);
            assert!(settlement.readings.iter().all(|reading| reading.admits && reading.source == source));
        }
        let hasty = Claim { timeout: Some(Span::from_micros(1)), ..ending.claim(1) };
        assert_eq!(server.settle(&hasty).await.readings[0].source, Source::Assumed);
        server.guard.assume(&ending.claim(2), Source::Shed, &mut settlement);
        assert_eq!(settlement.replay, Replay::Conflict);
        assert_eq!((ending.used(&server), server.guard.status().waiting), (BEFORE, 1));
        server.run();
        server.pass(200 * MS).await;
        assert_eq!((ending.used(&server), server.guard.status().waiting), (AFTER, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_when_too_much_waits_is_dropped_and_counted() {
    let server = server(1, 1);
    let ending = Ending::in_shards(&server, 0, [0, 0]).await;
    server.lose(0).await;
    for name in 0..10_010 {
        let name = name.to_string();
        let once = Once { key: ending.names.key(&name), body: 1, terms: 0, keep: KEEP };
        let settled = server.settle(&Claim { once: Some(once), ..ending.claim(1) }).await;
        assert!(settled.readings.iter().all(|reading| reading.admits));
    }
    let status = server.guard.status();
    assert_eq!((status.waiting, status.dropped), (10_000, 10));
}

/// A record without charges.
#[tokio::test(start_paused = true)]
async fn a_name_alone_waits_too() {
    let mut server = server(1, 1);
    let ending = Ending::in_shards(&server, 0, [0, 0]).await;
    let mut nothing = ending.claim(1);
    nothing.charges.clear();
    server.lose(0).await;
    assert_eq!(server.settle(&nothing).await.replay, Replay::First);
    server.run();
    come_back(&server, 0).await;
    server.pass(200 * MS).await;
    assert_eq!(server.settle(&ending.claim(2)).await.replay, Replay::Conflict);
    assert!(is_again(&server.settle(&nothing).await));
}
