//! Servers that start, or start again, while the store is unavailable.

use std::time::Duration;

use tollgate_core::{Algorithm, OnFailure};
use tollgate_store::sharded::{MemoryShards, ShardFault};
use tollgate_store::{GuardConfig, Guarded, ManualClock, SavedGuard, SavedGuardError};

use crate::guarded::world::{Rule, START, Server, skip};

const MS: Duration = Duration::from_millis(1);

async fn admitted(server: &Server, rule: &Rule, attempts: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..attempts {
        admitted += u64::from(server.one(rule.take("x", 1)).await.admits);
    }
    admitted
}

/// A server over the same shards, with the state of this one as it would be read from a file.
fn restarted(server: &Server, config: GuardConfig) -> Server {
    let saved = SavedGuard::from_bytes(&server.guard.save().to_bytes()).unwrap();
    let shards = server.shards.clone();
    let clock = shards.clock().clone();
    let guard = Guarded::restored(shards.clone(), config, clock, Some(&saved));
    Server::from_parts(shards, guard)
}

fn unavailable_shards() -> MemoryShards<ManualClock> {
    let shards = MemoryShards::new(1, 1_024, ManualClock::at(START));
    shards.nodes()[0].set_fault(ShardFault::Unreachable);
    shards
}

#[tokio::test(start_paused = true)]
async fn servers_that_start_without_the_store_divide_limits_as_configured() {
    let shards = unavailable_shards();
    let config = GuardConfig { replicas: 4, ..GuardConfig::default() };
    let hundred = Rule::new("hundred", 100, Algorithm::FixedWindow, OnFailure::Local);
    let mut passed = 0;
    for _ in 0..4 {
        passed += admitted(&Server::over(shards.clone(), config), &hundred, 200).await;
    }
    assert_eq!(passed, 100);
}

#[tokio::test(start_paused = true)]
async fn the_setting_is_the_least_number_of_servers() {
    for (heard, replicas) in [(2, 4), (7, 7)] {
        let config = GuardConfig { replicas: 4, ..GuardConfig::default() };
        let mut server = Server::with(1, config);
        server.shards.set_replicas(heard);
        server.run();
        server.pass(100 * MS).await;
        assert_eq!(server.guard.status().replicas, replicas, "{heard} were heard");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_servers_survives_a_restart() {
    let mut server = Server::new(1);
    server.shards.set_replicas(4);
    server.run();
    server.pass(100 * MS).await;
    server.node(0).set_fault(ShardFault::Unreachable);
    let mut again = restarted(&server, GuardConfig::default());
    let rule = Rule::new("hundred", 100, Algorithm::FixedWindow, OnFailure::Local);
    assert_eq!((again.guard.status().replicas, admitted(&again, &rule, 200).await), (4, 25));
    // The store comes back empty, and hears of one server before the others.
    again.shards.set_replicas(1);
    again.node(0).set_fault(ShardFault::None);
    again.run();
    again.pass(6_000 * MS).await;
    assert_eq!(again.guard.status().replicas, 4);
    again.pass(2_100 * MS).await;
    assert_eq!(again.guard.status().replicas, 1);
}

#[tokio::test(start_paused = true)]
async fn rolling_restarts_give_nothing_out_twice() {
    let algorithms = [
        Algorithm::Bucket { burst: 10, paced: false },
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 6 },
        Algorithm::SlidingLog,
    ];
    for algorithm in algorithms {
        let rule = Rule::new("ten", 10, algorithm, OnFailure::Local);
        let config = GuardConfig { replicas: 3, ..GuardConfig::default() };
        let mut server = Server::over(unavailable_shards(), config);
        skip(server.shards.clock(), Duration::from_secs(20));
        // A share of ten among three is four. Three pass before the first restart, one after it, and then nothing.
        let mut passed = admitted(&server, &rule, 3).await;
        for _ in 0..4 {
            server = restarted(&server, config);
            passed += admitted(&server, &rule, 20).await;
        }
        assert_eq!(passed, 4, "{algorithm:?}");
        skip(server.shards.clock(), Duration::from_secs(121));
        server = restarted(&server, config);
        assert_eq!(admitted(&server, &rule, 20).await, 4, "{algorithm:?}: in the next period");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_used_up_stays_used_up_across_restarts() {
    let server = Server::new(1);
    let rule = Rule::ten(OnFailure::Local);
    assert_eq!(admitted(&server, &rule, 11).await, 10);
    server.node(0).set_fault(ShardFault::Unreachable);
    let again = restarted(&restarted(&server, GuardConfig::default()), GuardConfig::default());
    assert_eq!(admitted(&again, &rule, 30).await, 0);
}

#[tokio::test(start_paused = true)]
async fn damaged_states_are_found() {
    let server = Server::new(1);
    server.one(Rule::ten(OnFailure::Local).take("x", 4)).await;
    let bytes = server.guard.save().to_bytes();
    assert_eq!(SavedGuard::from_bytes(&bytes).map(|saved| (saved.replicas(), saved.readings())), Ok((1, 1)));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(SavedGuard::from_bytes(&damaged).is_err(), "byte {at}");
        assert!(SavedGuard::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
    }
    let error: SavedGuardError = SavedGuard::from_bytes(b"").unwrap_err();
    assert_eq!(error.to_string(), "it is of another kind or version");
}
