//! Counters of other regions, which are further away and fail by themselves.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Ask, Charge, Key, Mode, OnFailure, Once, Reading, RegionId, Settlement, Source, Span, Verdict,
};
use tollgate_store::sharded::{MemoryShards, ShardFault, ShardNode};
use tollgate_store::{Circuit, GuardConfig, Guarded, Level, ManualClock, OtherRegion, Regions, Store as _};

use crate::guarded::world::{Rule, START, claim, pass, skip};

const MS: Duration = Duration::from_millis(1);
const WEST: RegionId = RegionId::new(2);

type Shards = MemoryShards<ManualClock>;

/// A server in a region with two others.
struct Server {
    clock: ManualClock,
    /// By region: here, north, west.
    shards: [Shards; 3],
    guard: Arc<Guarded<Regions<Shards>, ManualClock>>,
}

impl Server {
    fn new() -> Server {
        let clock = ManualClock::at(START);
        let shards = [1, 1, 1].map(|count| MemoryShards::new(count, 1_024, clock.clone()));
        let other =
            |name: &str, at: usize| OtherRegion { name: name.to_owned(), store: shards[at].clone(), deadline: 50 * MS };
        let regions = Regions::new(shards[0].clone(), [other("north", 1), other("west", 2)]);
        let guard = Guarded::with_clock(regions, GuardConfig::default(), clock.clone());
        Server { clock, shards, guard: Arc::new(guard) }
    }

    fn node(&self, region: usize) -> &ShardNode<ManualClock> {
        &self.shards[region].nodes()[0]
    }

    async fn settle<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> (bool, Settlement) {
        let claim = claim(charges);
        let settlement = self.guard.settle(&claim).await;
        (Verdict::reach(&claim, &settlement).allowed, settlement)
    }

    /// Gives back four units of a key, once by this name.
    async fn give_back(&self, rule: &Rule, region: RegionId, name: &str) {
        let charge = rule.asks("a", Ask::Return { taken_at: START }, 4, Mode::Enforce);
        let mut claim = claim([at(charge, region)]);
        let key = rule.key(name).in_region(region);
        claim.once = Some(Once { key, body: 1, terms: 0, keep: Span::from_secs(600) });
        self.guard.settle(&claim).await;
    }

    fn remaining(&self, region: usize, charge: &Charge<'_>) -> u64 {
        self.shards[region].peek(charge).remaining
    }
}

/// A charge on the same counter in a region.
fn at(charge: Charge<'_>, region: RegionId) -> Charge<'_> {
    Charge { key: Key::clone(&charge.key).in_region(region), ..charge }
}

fn source(settlement: &Settlement) -> Vec<Source> {
    settlement.readings.iter().map(|reading: &Reading| reading.source).collect()
}

/// How long something takes on paused time.
async fn millis<F: Future>(future: F) -> u64 {
    let (mut future, mut millis) = (pin!(future), 0);
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(MS) => millis += 1,
            _ = &mut future => return millis,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_counter_is_in_the_region_of_its_key() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    let (passes, _) = server.settle([rule.take("a", 2), at(rule.take("a", 3), WEST)]).await;
    assert!(passes);
    let left = [0, 1, 2].map(|region| server.remaining(region, &rule.take("a", 0)));
    assert_eq!(left, [8, 10, 7]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_here_is_given_back_there() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    server.settle([rule.take("full", 10)]).await;
    let (passes, settlement) = server.settle([rule.take("full", 1), at(rule.take("a", 3), WEST)]).await;
    assert!(!passes && settlement.readings[1].taken == 0);
    assert_eq!(server.remaining(2, &rule.take("a", 0)), 10);
}

#[tokio::test(start_paused = true)]
async fn a_region_is_waited_for_longer_and_no_longer_than_the_caller_waits() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    server.node(0).set_fault(ShardFault::Stalled);
    server.node(2).set_fault(ShardFault::Stalled);
    let here = rule.take("a", 1);
    let there = at(rule.take("a", 1), WEST);
    for (charges, timeout, expected) in [
        (vec![here.clone()], None, 8),
        (vec![there.clone()], None, 50),
        (vec![here.clone(), there.clone()], None, 50),
        (vec![there.clone()], Some(20), 17),
        (vec![here, there], Some(2), 0),
    ] {
        let mut claim = claim(charges);
        claim.timeout = timeout.map(|millis: u64| Span::from_micros(millis * 1_000));
        assert_eq!(millis(server.guard.settle(&claim)).await, expected, "{timeout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_away_fails_by_itself() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    let local = Rule::new("local", 10, Algorithm::FixedWindow, OnFailure::Local);
    server.node(2).set_fault(ShardFault::Unreachable);
    for _ in 0..5 {
        let (passes, settlement) = server.settle([local.take("b", 1), at(rule.take("a", 1), WEST)]).await;
        assert!(!passes);
        // The other counter is read from its store, and nothing is taken from it.
        assert_eq!(source(&settlement), [Source::Store, Source::Assumed]);
        skip(&server.clock, 60 * MS);
    }
    let status = server.guard.status();
    let circuits: Vec<_> = status.shards.iter().map(|shard| (shard.name.as_str(), shard.circuit)).collect();
    let expected = [("shard-0", Circuit::Closed), ("north/shard-0", Circuit::Closed), ("west/shard-0", Circuit::Open)];
    assert_eq!(circuits, expected);
    assert_eq!(status.level, Level::Normal, "the store of this region is well");
    assert_eq!(server.remaining(0, &local.take("b", 0)), 10);

    // An open breaker costs nothing, and other regions and rules nothing at all.
    let calls = server.node(2).calls();
    let north = at(rule.take("a", 1), RegionId::new(1));
    let unhurt = async {
        assert!(server.settle([local.take("b", 1), north]).await.0);
        assert!(!server.settle([at(rule.take("a", 1), WEST)]).await.0);
    };
    assert_eq!(millis(unhurt).await, 0);
    let admitted = at(local.take("c", 1), WEST);
    let (passes, settlement) = server.settle([admitted, local.take("b", 1)]).await;
    assert!(passes && source(&settlement) == [Source::Local, Source::Store]);
    assert_eq!(server.node(2).calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn this_region_that_is_away_lets_others_answer() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    server.node(0).set_fault(ShardFault::Unreachable);
    for _ in 0..5 {
        server.settle([rule.take("a", 1)]).await;
        skip(&server.clock, 10 * MS);
    }
    assert_eq!(server.guard.status().level, Level::LocalOnly);
    let (passes, settlement) = server.settle([at(rule.take("a", 1), WEST)]).await;
    assert!(passes && source(&settlement) == [Source::Store]);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_region_that_does_not_exist_follows_its_policy() {
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    let (passes, settlement) = server.settle([at(rule.take("a", 1), RegionId::new(9))]).await;
    assert!(!passes && source(&settlement) == [Source::Assumed]);
}

#[tokio::test(start_paused = true)]
async fn readings_of_regions_are_apart() {
    // The same key in two regions has two counters, in local memory too.
    let server = Server::new();
    let rule = Rule::new("local", 10, Algorithm::FixedWindow, OnFailure::Local);
    for region in 0..3 {
        server.node(region).set_fault(ShardFault::Unreachable);
    }
    for (region, units, left) in [(0, 4, 6), (2, 7, 3), (0, 1, 5), (1, 1, 9)] {
        let (passes, settlement) = server.settle([at(rule.take("a", units), RegionId::new(region))]).await;
        assert!(passes);
        assert_eq!((settlement.readings[0].source, settlement.readings[0].remaining), (Source::Local, left));
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_region_holds_up_no_other() {
    const WAITING: usize = 10_000;
    let (server, rule) = (Server::new(), Rule::ten(OnFailure::Deny));
    server.settle([rule.take("a", 10)]).await;
    server.node(2).set_fault(ShardFault::Unreachable);
    for number in 0..=WAITING {
        server.give_back(&rule, WEST, &number.to_string()).await;
    }
    let status = server.guard.status();
    assert_eq!((status.waiting, status.dropped), (WAITING, 1));

    // Too late for its caller, it is sent with the next turn.
    server.node(0).set_fault(ShardFault::Unreachable);
    server.give_back(&rule, RegionId::HERE, "here").await;
    assert_eq!((server.guard.status().waiting, server.remaining(0, &rule.take("a", 0))), (WAITING + 1, 0));
    server.node(0).set_fault(ShardFault::None);
    let guard = server.guard.clone();
    let task = tokio::spawn(async move { guard.run().await });
    pass(&server.clock, 60 * MS).await;
    assert_eq!((server.guard.status().waiting, server.remaining(0, &rule.take("a", 0))), (WAITING, 4));
    task.abort();
}
