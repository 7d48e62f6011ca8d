//! Random claims over shards that fail at random: never more is admitted than the policies allow, and what is refused leaves
//! nothing behind.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Ask, Charge, Mode, OnFailure, Verdict};

use crate::shards::Fault;
use crate::world::{Rule, Server, claim, skip};

const SHARDS: usize = 3;
const VALUES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const AMOUNT: u64 = 12;

#[derive(Clone, Debug)]
struct Step {
    fault: Option<(usize, Fault)>,
    charges: Vec<(usize, u64, Mode, bool)>,
    /// Whether the caller goes away before the answer.
    leaves: bool,
    /// Microseconds that pass afterwards.
    passes: u64,
}

fn steps(faults: &'static [Fault]) -> impl Strategy<Value = Step> {
    let mode = prop_oneof![6 => Just(Mode::Enforce), 2 => Just(Mode::AnyOf), 1 => Just(Mode::Shadow)];
    let charge = (0..VALUES.len(), 1u64..4, mode, prop::bool::weighted(0.1));
    let fault = prop::option::weighted(0.3, (0..SHARDS, prop::sample::select(faults)));
    let leaves = prop::bool::weighted(0.1);
    (fault, prop::collection::vec(charge, 1..5), leaves, 0u64..20_000)
        .prop_map(|(fault, charges, leaves, passes)| Step { fault, charges, leaves, passes })
}

/// What each key gave to claims that passed.
type Taken = HashMap<&'static str, u64>;

/// Runs the steps within one window, and then until nothing waits any more.
async fn run(server: &mut Server, rule: &Rule, steps: &[Step]) -> Taken {
    let mut taken = Taken::new();
    for step in steps {
        if let Some((shard, fault)) = step.fault {
            server.shards.nodes[shard].set(fault);
        }
        let charge = |(value, units, mode, lease): &(usize, u64, Mode, bool)| -> Charge<'_> {
            let ask = if *lease { Ask::UpTo } else { Ask::Exactly };
            rule.asks(VALUES[*value], ask, *units, *mode)
        };
        let asked = claim(step.charges.iter().map(charge));
        let patience = if step.leaves { Duration::from_millis(3) } else { Duration::from_secs(1) };
        if let Ok(settlement) = tokio::time::timeout(patience, server.settle(&asked)).await {
            let allowed = Verdict::reach(&asked, &settlement).allowed;
            for ((value, ..), reading) in step.charges.iter().zip(&settlement.readings) {
                assert!(allowed || reading.taken == 0, "refused, and yet it took: {settlement:?}");
                *taken.entry(VALUES[*value]).or_default() += reading.taken;
            }
        }
        skip(&server.shards.clock, Duration::from_micros(step.passes));
    }
    server.shards.nodes.iter().for_each(|node| node.set(Fault::None));
    server.tend();
    server.pass(Duration::from_secs(7)).await;
    assert_eq!((server.guard.status().waiting, server.guard.status().owed), (0, 0));
    taken
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

fn used(server: &Server, rule: &Rule, value: &str) -> u64 {
    AMOUNT.saturating_sub(server.shards.look(&rule.take(value, 0)).remaining)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Failures that are known to have settled nothing, and callers who wait: the store counts exactly what passed.
    #[test]
    fn the_store_counts_exactly_what_passed(
        history in prop::collection::vec(steps(&[Fault::None, Fault::None, Fault::Cut, Fault::Broken]), 1..60),
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

    /// Any failures, and callers who go away: the store counts what passed, and perhaps what nobody knows of.
    #[test]
    fn no_more_passes_than_the_limit(
        history in prop::collection::vec(
            steps(&[Fault::None, Fault::None, Fault::Cut, Fault::Broken, Fault::Stalled, Fault::Mute]), 1..60),
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

    /// Counted locally meanwhile: the store's limit and this server's share of it, and no more.
    #[test]
    fn no_more_passes_than_the_limit_and_the_share(
        history in prop::collection::vec(
            steps(&[Fault::None, Fault::None, Fault::Cut, Fault::Broken, Fault::Stalled, Fault::Mute]), 1..100),
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
