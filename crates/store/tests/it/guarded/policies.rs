//! The readings of charges whose shard is unavailable.

use std::future::pending;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, Key, Mode, OnFailure, Reading, Settlement, Source, Span, Verdict, Wait};
use tollgate_store::sharded::{Failure, Location, OnceRecord, ShardFault, ShardId, ShardInfo, Sharded};
use tollgate_store::{Clock, GuardConfig, Guarded, Level, Store};

use crate::guarded::world::{Rule, Server, claim, skip};

const MS: Duration = Duration::from_millis(1);

fn one_of_each(amount: u64, on_failure: OnFailure) -> Vec<Rule> {
    let algorithms = [
        ("token", Algorithm::Bucket { burst: amount, paced: false }),
        ("fixed", Algorithm::FixedWindow),
        ("sliding", Algorithm::SlidingWindow { sub_windows: 1 }),
        ("parts", Algorithm::SlidingWindow { sub_windows: 10 }),
        ("log", Algorithm::SlidingLog),
        ("holds", Algorithm::Concurrency),
    ];
    algorithms.into_iter().map(|(name, algorithm)| Rule::new(name, amount, algorithm, on_failure)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_policy_reads_as_it_should() {
    let server = Server::new(1);
    server.lose(0).await;
    let denied = server.one(Rule::ten(OnFailure::Deny).take("x", 1)).await;
    assert_eq!((denied.admits, denied.source), (false, Source::Assumed));
    let Wait::For(wait) = denied.wait else { panic!("{denied:?}") };
    assert!((Span::from_secs(3)..=Span::from_secs(6)).contains(&wait), "until the next probe, not {wait:?}");
    skip(server.shards.clock(), Duration::from_secs(60));
    let late = server.one(Rule::ten(OnFailure::Deny).take("x", 1)).await;
    assert_eq!(late.wait, Wait::For(Reading::RETRY_AFTER), "the probe is due, and a second is the least");

    let allowed = server.one(Rule::ten(OnFailure::Allow).take("x", 1)).await;
    assert_eq!((allowed.admits, allowed.taken, allowed.source), (true, 0, Source::Assumed));
    let local = server.one(Rule::ten(OnFailure::Local).take("x", 1)).await;
    assert_eq!((local.admits, local.taken, local.remaining, local.source), (true, 1, 9, Source::Local));
}

#[tokio::test(start_paused = true)]
async fn local_memory_admits_this_servers_share_of_each_limit() {
    for (replicas, share) in [(1, 10), (2, 5), (3, 4), (10, 1), (1_000, 1)] {
        let mut server = Server::new(1);
        server.shards.set_replicas(replicas);
        server.run();
        server.pass(100 * MS).await;
        server.lose(0).await;
        assert_eq!(server.guard.status().replicas, replicas, "the last known count stays valid");
        for rule in one_of_each(10, OnFailure::Local) {
            let mut admitted = 0;
            for _ in 0..30 {
                admitted += u64::from(server.one(rule.take("x", 1)).await.admits);
            }
            assert_eq!(admitted, share, "{:?} among {replicas}", rule.limit.algorithm());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_the_servers_is_not_believed_at_once() {
    let mut server = Server::new(1);
    server.shards.set_replicas(3);
    server.run();
    server.pass(100 * MS).await;
    server.shards.set_replicas(1);
    // Long enough for a heartbeat of every server, even if its last one failed slowly.
    for _ in 0..3 {
        server.pass(2_000 * MS).await;
        assert_eq!(server.guard.status().replicas, 3);
    }
    server.pass(2_000 * MS).await;
    assert_eq!(server.guard.status().replicas, 1, "the others are gone");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shared_out_of_a_limit_of_nothing() {
    let server = Server::new(1);
    server.lose(0).await;
    let none = Rule::new("none", 0, Algorithm::FixedWindow, OnFailure::Local);
    assert!(!server.one(none.take("x", 1)).await.admits);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_all_or_nothing_in_local_memory_too() {
    let server = Server::new(1);
    server.lose(0).await;
    let (rule, deny) = (Rule::ten(OnFailure::Local), Rule::new("deny", 10, Algorithm::FixedWindow, OnFailure::Deny));
    for refused in [
        claim([rule.take("x", 3), rule.take("y", 11)]),
        claim([rule.take("x", 3), deny.take("y", 1)]),
        claim([rule.take("x", 3), rule.asks("z", Ask::UpTo, 3, Mode::Enforce), deny.take("y", 1)]),
        claim([rule.take("x", 3), rule.asks("x", Ask::Exactly, 20, Mode::AnyOf)]),
    ] {
        let settlement = server.settle(&refused).await;
        assert!(settlement.readings.iter().all(|reading| reading.taken == 0), "{settlement:?}");
        assert!(!Verdict::reach(&refused, &settlement).allowed);
        for value in ["x", "z"] {
            assert_eq!(server.one(rule.take(value, 0)).await.remaining, 10, "a refused claim left a trace in {value}");
        }
    }
    assert_eq!(server.fail_open("open"), 2 * 4, "only the looks passed");
    assert_eq!(server.guard.status().owed, 0);
    let passes = claim([
        rule.take("x", 3),
        rule.asks("y", Ask::Exactly, 20, Mode::AnyOf),
        rule.asks("z", Ask::Exactly, 1, Mode::AnyOf),
    ]);
    let taken: Vec<u64> = server.settle(&passes).await.readings.iter().map(|reading| reading.taken).collect();
    assert_eq!(taken, [3, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_store_gets_the_deadline_or_less() {
    let server = Server::new(1);
    let local = Rule::ten(OnFailure::Local);
    server.node(0).set_fault(ShardFault::Stalled);
    for (timeout, took) in [(None, 8), (Some(100_000), 8), (Some(10_000), 7), (Some(4_000), 1)] {
        let patient = Claim { timeout: timeout.map(Span::from_micros), ..claim([local.take("x", 1)]) };
        let (before, calls) = (server.fail_open("timeout"), server.node(0).calls());
        let settled = tokio::time::timeout((took - 1) * MS, server.settle(&patient)).await;
        assert!(settled.is_err(), "{timeout:?}: answered before {took} ms");
        let settled = tokio::time::timeout((took + 2) * MS, server.settle(&patient)).await;
        assert!(settled.is_ok(), "{timeout:?}: not answered within {took} ms");
        assert!(server.fail_open("timeout") > before);
        assert_eq!(server.node(0).calls(), calls + 2);
        skip(server.shards.clock(), Duration::from_secs(11));
    }
    for timeout in [0, 1, 3_000, 3_999] {
        let hasty = Claim { timeout: Some(Span::from_micros(timeout)), ..claim([local.take("y", 1)]) };
        let calls = server.node(0).calls();
        assert_eq!(server.settle(&hasty).await.readings[0].source, Source::Local);
        assert_eq!(server.node(0).calls(), calls, "{timeout} µs: there is no time to call the store");
    }
}

/// A sharded store that ignores its timeouts.
struct Endless;

impl Sharded for Endless {
    fn locate(&self, _: &Key<'_>) -> Location {
        Location { shard: ShardId(0), slot: 0 }
    }

    async fn settle_at(
        &self,
        _: Location,
        _: &Claim<'_>,
        _: OnceRecord<'_>,
        _: Duration,
        _: &mut Settlement,
    ) -> Result<(), Failure> {
        pending().await
    }

    async fn probe(&self, _: ShardId, _: Duration) -> Result<(), Failure> {
        pending().await
    }

    fn shards(&self) -> Vec<ShardInfo> {
        Vec::new()
    }

    async fn heartbeat(&self, _: Duration) -> Result<u64, Failure> {
        pending().await
    }
}

/// The sharded store bounds its calls. A second timer in the guard would only cost time on the path of every check.
#[tokio::test(start_paused = true)]
async fn a_check_needs_no_timer_but_that_of_the_store() {
    let guard = Guarded::new(Endless, GuardConfig::default());
    let rule = Rule::ten(OnFailure::Local);
    let claim = claim([rule.take("x", 1)]);
    let settled = tokio::time::timeout(Duration::from_secs(3_600), guard.settle(&claim)).await;
    assert!(settled.is_err(), "the guard has a timer of its own: {settled:?}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_counts_has_a_last_resort() {
    let server = Server::with(1, GuardConfig { last_resort: Some(3), ..GuardConfig::default() });
    server.lose(0).await;
    let (allow, local) =
        (Rule::new("allow", 10, Algorithm::FixedWindow, OnFailure::Allow), Rule::ten(OnFailure::Local));
    for second in 0..3 {
        for nth in 0..10 {
            let settlement = server.settle(&claim([allow.take("x", 1), local.take("y", 1)])).await;
            let readings = settlement.readings;
            assert_eq!(readings[0].admits, nth < 3, "request {nth} of second {second}");
            assert_eq!(readings[0].source, Source::Assumed);
            assert_eq!(readings[1].taken, u64::from(nth < 3), "a refused request paid");
            if nth >= 3 {
                assert_eq!(readings[0].wait, Wait::For(Reading::RETRY_AFTER));
            }
            // Counted charges and peeks need no last resort.
            assert!(server.one(allow.take("x", 0)).await.admits);
        }
        skip(server.shards.clock(), Duration::from_secs(1));
    }
    assert!(server.one(local.take("z", 1)).await.admits);
    let none = Server::with(1, GuardConfig { last_resort: Some(0), ..GuardConfig::default() });
    none.lose(0).await;
    assert!(!none.one(allow.take("x", 1)).await.admits, "none may pass");
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_the_bound_of_local_memory_get_one_limit_together() {
    let server = Server::with(1, GuardConfig { local_keys: 100, ..GuardConfig::default() });
    server.lose(0).await;
    for rule in one_of_each(3, OnFailure::Local) {
        skip(server.shards.clock(), Duration::from_secs(120));
        let case = format!("{:?}", rule.limit.algorithm());
        for key in 0..100 {
            assert!(server.one(rule.take(&key.to_string(), 1)).await.admits, "{case}: key {key} has a counter");
        }
        let beyond: Vec<Claim<'_>> = NAMES.iter().map(|name| claim([rule.take(name, 1)])).collect();
        for (nth, one) in beyond.iter().enumerate() {
            let reading = server.settle(one).await.readings[0];
            assert_eq!((reading.admits, reading.source), (nth < 3, Source::Local), "{case}: {nth} beyond the bound");
            assert_eq!(reading.remaining, 2u64.saturating_sub(nth as u64), "{case}");
        }
        assert_eq!(server.guard.status().local, 100, "{case}");
        assert!(server.one(rule.take("99", 1)).await.admits, "{case}: who has a counter is not affected");
        // What is given back is given back to the common counter, and nobody releases the hold of another.
        let taken_at = server.shards.clock().now();
        let back = |at: usize| {
            let charge = rule.asks(NAMES[at], Ask::Return { taken_at }, 1, Mode::Enforce);
            Claim { id: beyond[at].id, ..claim([charge]) }
        };
        if rule.limit.algorithm() == Algorithm::Concurrency {
            server.settle(&back(4)).await;
            assert!(!server.one(rule.take("new", 1)).await.admits, "{case}: who holds nothing released a hold");
        }
        server.settle(&back(0)).await;
        assert!(server.one(rule.take("new", 1)).await.admits, "{case}");
        assert!(!server.one(rule.take("newer", 1)).await.admits, "{case}");
    }
    assert_eq!(server.guard.status().level, Level::LocalOnly, "nothing passed uncounted");
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[tokio::test(start_paused = true)]
async fn a_claim_on_several_keys_beyond_the_bound_is_all_or_nothing() {
    let server = Server::with(1, GuardConfig { local_keys: 0, ..GuardConfig::default() });
    server.lose(0).await;
    let (ten, five) = (Rule::ten(OnFailure::Local), Rule::new("five", 5, Algorithm::FixedWindow, OnFailure::Local));
    let both = claim([ten.take("x", 4), ten.take("y", 4), five.take("x", 1)]);
    let taken = |settlement: Settlement| settlement.readings.iter().map(|reading| reading.taken).collect::<Vec<_>>();
    assert_eq!(taken(server.settle(&both).await), [4, 4, 1]);
    assert_eq!(taken(server.settle(&both).await), [0, 0, 0], "there is room for 2 of 8");
    assert_eq!(server.one(five.take("z", 0)).await.remaining, 4);
    assert_eq!(server.one(ten.take("z", 2)).await.remaining, 0);
}

#[tokio::test(start_paused = true)]
async fn stale_local_counters_make_room() {
    let server = Server::with(1, GuardConfig { local_keys: 100, ..GuardConfig::default() });
    server.lose(0).await;
    let rule = Rule::new("one", 1, Algorithm::FixedWindow, OnFailure::Local);
    for key in 0..300 {
        let reading = server.one(rule.take(&key.to_string(), 1)).await;
        assert_eq!((reading.admits, reading.source), (key <= 100, Source::Local), "key {key}");
    }
    skip(server.shards.clock(), Duration::from_secs(60));
    for key in 300..400 {
        assert!(server.one(rule.take(&key.to_string(), 1)).await.admits, "key {key}");
    }
    assert_eq!((server.guard.status().local, server.guard.status().coarse), (100, 1));
}

#[tokio::test(start_paused = true)]
async fn rules_beyond_the_bound_of_common_counters_have_the_last_resort() {
    let server = Server::with(1, GuardConfig { local_keys: 0, last_resort: Some(2), ..GuardConfig::default() });
    server.lose(0).await;
    let rules = (0..1_026).map(|number| Rule::new(&number.to_string(), 1, Algorithm::FixedWindow, OnFailure::Local));
    for (number, rule) in rules.enumerate() {
        let source = if number < 1_024 { Source::Local } else { Source::Assumed };
        let readings = [server.one(rule.take("x", 1)).await, server.one(rule.take("y", 1)).await];
        assert_eq!(readings.map(|reading| reading.source), [source; 2], "rule {number}");
        let admits = if number < 1_024 { [true, false] } else { [number == 1_024; 2] };
        assert_eq!(readings.map(|reading| reading.admits), admits, "rule {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_shed_are_counted_locally() {
    let server = Server::new(2);
    let (local, deny) = (Rule::ten(OnFailure::Local), Rule::new("deny", 10, Algorithm::FixedWindow, OnFailure::Deny));
    let mut settlement = Settlement::default();
    for nth in 0..15 {
        server.guard.assume(&claim([local.take("x", 1)]), Source::Shed, &mut settlement);
        assert_eq!((settlement.readings[0].admits, settlement.readings[0].source), (nth < 10, Source::Shed));
    }
    server.guard.assume(&claim([deny.take("x", 1)]), Source::Assumed, &mut settlement);
    assert_eq!((settlement.readings[0].admits, settlement.readings[0].source), (false, Source::Assumed));
    assert_eq!((server.fail_open("shed"), server.fail_open("panic")), (10, 0));
    assert_eq!((server.node(0).calls(), server.node(1).calls()), (0, 0));
    assert_eq!(server.guard.status().level, Level::Normal, "the store is well");
}

#[tokio::test(start_paused = true)]
async fn levels_say_how_much_answers() {
    let server = Server::new(2);
    let allow = Rule::new("allow", 10, Algorithm::FixedWindow, OnFailure::Allow);
    let level = || server.guard.status().level.name();
    assert_eq!(level(), "normal");
    server.lose(1).await;
    assert_eq!(level(), "degraded");
    server.lose(0).await;
    assert_eq!(level(), "local-only");
    server.one(allow.take("x", 1)).await;
    assert_eq!(level(), "open");
    skip(server.shards.clock(), Duration::from_secs(10));
    assert_eq!(level(), "local-only");
    assert_eq!(server.fail_open("open"), 1);
}
