//! Random claims on shards that fail at random: never more is admitted than the policies allow, and a refusal leaves
//! nothing behind.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Ask, Charge, Claim, Mode, OnFailure, Once, Replay, Span, Verdict};
use tollgate_store::GuardConfig;

use crate::guarded::world::{Rule, START, Server, claim, skip};
use tollgate_store::sharded::ShardFault;

const SHARDS: usize = 3;
const VALUES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const AMOUNT: u64 = 12;

#[derive(Clone, Debug)]
struct Step {
    fault: Option<(usize, ShardFault)>,
    charges: Vec<(usize, u64, Mode, bool)>,
    /// Whether the caller goes away before the answer.
    leaves: bool,
    /// Microseconds that pass afterwards.
    passes: u64,
}

fn steps(faults: &'static [ShardFault]) -> impl Strategy<Value = Step> {
    let mode = prop_oneof![6 => Just(Mode::Enforce), 2 => Just(Mode::AnyOf), 1 => Just(Mode::Shadow)];
    let charge = (0..VALUES.len(), 1u64..4, mode, prop::bool::weighted(0.1));
    let fault = prop::option::weighted(0.3, (0..SHARDS, prop::sample::select(faults)));
    let leaves = prop::bool::weighted(0.1);
    (fault, prop::collection::vec(charge, 1..5), leaves, 0u64..20_000)
        .prop_map(|(fault, charges, leaves, passes)| Step { fault, charges, leaves, passes })
}

/// The units of each key that claims that passed took.
type Taken = HashMap<&'static str, u64>;

/// Runs the steps within one window, then waits until the outbox is empty.
async fn run(server: &mut Server, rule: &Rule, steps: &[Step]) -> Taken {
    let mut taken = Taken::new();
    for step in steps {
        if let Some((shard, fault)) = step.fault {
            server.shards.nodes()[shard].set_fault(fault);
        }
        let charge = |(value, units, mode, lease): &(usize, u64, Mode, bool)| -> Charge<'_> {
            let ask = if *lease { Ask::UpTo } else { Ask::Exactly };
            rule.asks(VALUES[*value], ask, *units, *mode)
        };
        let sent = claim(step.charges.iter().map(charge));
        let timeout = if step.leaves { Duration::from_millis(3) } else { Duration::from_secs(1) };
        if let Ok(settlement) = tokio::time::timeout(timeout, server.settle(&sent)).await {
            let allowed = Verdict::reach(&sent, &settlement).allowed;
            for ((value, ..), reading) in step.charges.iter().zip(&settlement.readings) {
                assert!(allowed || reading.taken == 0, "refused, and yet it took: {settlement:?}");
                *taken.entry(VALUES[*value]).or_default() += reading.taken;
            }
        }
        skip(server.shards.clock(), Duration::from_micros(step.passes));
    }
    server.shards.nodes().iter().for_each(|node| node.set_fault(ShardFault::None));
    server.run();
    server.pass(Duration::from_secs(7)).await;
    assert_eq!((server.guard.status().waiting, server.guard.status().owed), (0, 0));
    taken
}

/// The end of a request: the units that it gives back and debits, and how often and to which server its settlement is
/// sent.
#[derive(Clone, Debug)]
struct Ending {
    facts: Vec<(usize, u64, bool)>,
    tries: Vec<Try>,
}

#[derive(Clone, Debug)]
struct Try {
    fault: Option<(usize, ShardFault)>,
    server: usize,
    leaves: bool,
    passes: u64,
}

fn endings() -> impl Strategy<Value = Ending> {
    const FAULTS: [ShardFault; 7] = [
        ShardFault::None,
        ShardFault::None,
        ShardFault::None,
        ShardFault::Unreachable,
        ShardFault::Error,
        ShardFault::Stalled,
        ShardFault::Mute,
    ];
    let fact = (0..VALUES.len(), 1u64..4, any::<bool>());
    let fault = prop::option::weighted(0.3, (0..SHARDS, prop::sample::select(&FAULTS[..])));
    let one_try = (fault, 0usize..2, prop::bool::weighted(0.2), 0u64..20_000)
        .prop_map(|(fault, server, leaves, passes)| Try { fault, server, leaves, passes });
    (prop::collection::vec(fact, 0..5), prop::collection::vec(one_try, 1..4))
        .prop_map(|(facts, tries)| Ending { facts, tries })
}

/// The units that each counter had before any settlement.
const BEFORE: u64 = 1_000;

/// Sends all settlements in order, each as often as it says, then repairs all shards. Returns the expected units of
/// the counters.
async fn tell(servers: &mut [Server; 2], rule: &Rule, names: &Rule, endings: &[Ending]) -> HashMap<&'static str, u64> {
    let mut expected: HashMap<&'static str, u64> = VALUES.iter().map(|value| (*value, BEFORE)).collect();
    for value in VALUES {
        assert!(servers[0].one(rule.take(value, BEFORE)).await.admits);
    }
    let shards = servers[0].shards.clone();
    servers.iter_mut().for_each(Server::run);
    for (number, ending) in endings.iter().enumerate() {
        let name = number.to_string();
        let fact = |(value, units, back): &(usize, u64, bool)| {
            let ask = if *back { Ask::Return { taken_at: START } } else { Ask::Regardless };
            rule.asks(VALUES[*value], ask, *units, Mode::Enforce)
        };
        let once = Once { key: names.key(&name), body: 1, terms: 0, keep: Span::from_secs(600) };
        let sent = Claim { once: Some(once), ..claim(ending.facts.iter().map(fact)) };
        for one in &ending.tries {
            if let Some((shard, fault)) = one.fault {
                shards.nodes()[shard].set_fault(fault);
            }
            let timeout = Duration::from_millis(if one.leaves { 3 } else { 1_000 });
            if let Ok(settled) = tokio::time::timeout(timeout, servers[one.server].settle(&sent)).await {
                assert!(settled.replay != Replay::Conflict && settled.readings.iter().all(|reading| reading.admits));
            }
            skip(shards.clock(), Duration::from_micros(one.passes));
        }
        for (value, units, back) in &ending.facts {
            let counter = expected.entry(VALUES[*value]).or_default();
            *counter = if *back { *counter - units } else { *counter + units };
        }
    }
    shards.nodes().iter().for_each(|node| node.set_fault(ShardFault::None));
    servers[0].pass(Duration::from_secs(8)).await;
    for server in servers {
        assert_eq!((server.guard.status().waiting, server.guard.status().dropped), (0, 0));
    }
    expected
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

fn used(server: &Server, rule: &Rule, value: &str) -> u64 {
    AMOUNT.saturating_sub(server.shards.peek(&rule.take(value, 0)).remaining)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Failures that certainly settled nothing, and callers that wait: the store counts exactly what passed.
    #[test]
    fn the_store_counts_exactly_what_passed(
        history in prop::collection::vec(steps(&[ShardFault::None, ShardFault::None, ShardFault::Unreachable, ShardFault::Error]), 1..60),
    ) {
        in_runtime(async {
            let rule = Rule::new("log", AMOUNT, Algorithm::SlidingLog, OnFailure::Deny);
            let mut server = Server::new(SHARDS);
            let taken = run(&mut server, &rule, &history).await;
            for value in VALUES {
                let passed = taken.get(value).copied().unwrap_or_default();
                assert_eq!(used(&server, &rule, value), passed, "{value}");
            }
        });
    }

    /// Any failures, and callers that go away: the store counts what passed, and possibly claims of unknown outcome.
    #[test]
    fn no_more_passes_than_the_limit(
        history in prop::collection::vec(
            steps(&[ShardFault::None, ShardFault::None, ShardFault::Unreachable, ShardFault::Error, ShardFault::Stalled, ShardFault::Mute]), 1..60),
    ) {
        in_runtime(async {
            let rule = Rule::new("log", AMOUNT, Algorithm::SlidingLog, OnFailure::Deny);
            let mut server = Server::new(SHARDS);
            let taken = run(&mut server, &rule, &history).await;
            for value in VALUES {
                let passed = taken.get(value).copied().unwrap_or_default();
                let used = used(&server, &rule, value);
                assert!(passed <= used && used <= AMOUNT, "{value}: {passed} passed, {used} used");
            }
        });
    }

    /// Whatever fails and however often a settlement is repeated, to any server: each takes effect exactly once.
    #[test]
    fn settlements_take_effect_once(endings in prop::collection::vec(endings(), 1..40)) {
        in_runtime(async {
            let rule = Rule::new("log", 10_000, Algorithm::SlidingLog, OnFailure::Local);
            let names = Rule::new("names", 1, Algorithm::FixedWindow, OnFailure::Deny);
            let one = Server::new(SHARDS);
            let other = Server::over(one.shards.clone(), GuardConfig::default());
            let mut servers = [one, other];
            let expected = tell(&mut servers, &rule, &names, &endings).await;
            for value in VALUES {
                let used = 10_000 - servers[0].shards.peek(&rule.take(value, 0)).remaining;
                assert_eq!(used, expected[value], "{value}");
            }
        });
    }

    /// Counted locally meanwhile: at most the store's limit plus this server's share of it.
    #[test]
    fn no_more_passes_than_the_limit_and_the_share(
        history in prop::collection::vec(
            steps(&[ShardFault::None, ShardFault::None, ShardFault::Unreachable, ShardFault::Error, ShardFault::Stalled, ShardFault::Mute]), 1..100),
    ) {
        in_runtime(async {
            let rule = Rule::new("log", AMOUNT, Algorithm::SlidingLog, OnFailure::Local);
            let mut server = Server::new(SHARDS);
            let taken = run(&mut server, &rule, &history).await;
            for value in VALUES {
                let passed = taken.get(value).copied().unwrap_or_default();
                assert!(passed <= 2 * AMOUNT, "{value}: {passed} passed");
            }
        });
    }
}
