//! The conformance suite on the guarded store over real servers: a single server, and a cluster, in which most claims
//! on several keys are settled in parts. And random requests compared with memory, event by event.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::{Builder, Handle, Runtime};
use tollgate_core::{Claim, Settlement, Span, Timestamp};
use tollgate_redis::{RedisConfig, RedisStore};
use tollgate_store::conformance::steps::requests::{Play, compare, events};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::{GuardConfig, Guarded, ManualClock, MemoryConfig, Store};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::{RunningStore, config};

struct Guard {
    store: Entered,
    clock: ManualClock,
    running: RunningStore,
}

/// A store that uses the timers and connections of the runtime on any thread.
struct Entered {
    guard: Guarded<RedisStore, ManualClock>,
    runtime: Handle,
}

impl Store for Entered {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let mut settling = pin!(self.guard.settle_into(claim, settlement));
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            settling.as_mut().poll(context)
        })
        .await;
    }
}

impl Subject for Guard {
    type Store = Entered;

    fn store(&self) -> &Entered {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
        self.running.store.set_now(now);
    }
}

impl Guard {
    /// A store with this prefix.
    fn at(url: &str, prefix: String, runtime: &Handle) -> Guard {
        Guard::with(RedisConfig { prefix, ..config(url) }, runtime)
    }

    fn with(config: RedisConfig, runtime: &Handle) -> Guard {
        let _entered = runtime.enter();
        let running = RunningStore::new(config);
        // A busy machine is not a failure.
        let config = GuardConfig { deadline: Duration::from_secs(60), ..GuardConfig::default() };
        let clock = ManualClock::default();
        let guard = Guarded::with_clock(running.store.clone(), config, clock.clone());
        Guard { store: Entered { guard, runtime: runtime.clone() }, clock, running }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs the suite. Each of its stores has its own prefix.
fn run(url: &str) {
    let (runtime, stores) = (runtime(), Cell::new(0));
    conformance::run(|| {
        stores.set(stores.get() + 1);
        Guard::at(url, format!("t{}:", stores.get()), runtime.handle())
    });
}

/// Compares random requests in memory and in Redis: the same answers, and the same counters after each.
fn ends_alike(url: &str, cases: u32, play: fn(u64, u64) -> Play) {
    let runtime = runtime();
    let redis = Guard::at(url, "e:".to_owned(), runtime.handle());
    let (clock, plays) = (ManualClock::default(), Cell::new(0));
    let memory = MemoryConfig { grace: Span::ZERO, ..MemoryConfig::default() }.build_with(clock.clone());
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&(1u64..12, prop::collection::vec(events(), 1..40)), |(amount, history)| {
        plays.set(plays.get() + 1);
        let set_now = |now| {
            clock.set(now);
            redis.set_now(now);
        };
        compare(&mut play(plays.get(), amount), &history, (&memory, redis.store()), set_now)
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

#[test]
fn slow_the_guarded_store_conforms_on_one_server() {
    run(&Redis::start().url());
}

#[test]
fn slow_the_guarded_store_conforms_with_several_round_trips_at_a_time() {
    let (redis, runtime, stores) = (Redis::start(), runtime(), Cell::new(0));
    conformance::run(|| {
        stores.set(stores.get() + 1);
        let prefix = format!("t{}:", stores.get());
        let far = RedisConfig { prefix, round_trips: RedisConfig::MAX_ROUND_TRIPS, ..config(&redis.url()) };
        Guard::with(far, runtime.handle())
    });
}

#[test]
fn slow_requests_end_in_redis_as_in_memory() {
    ends_alike(&Redis::start().url(), 150, Play::new);
}

#[test]
fn slow_requests_end_in_a_cluster_as_in_memory() {
    ends_alike(&Cluster::start().url(), 60, Play::in_parts);
}

#[test]
fn slow_the_guarded_store_conforms_on_a_cluster() {
    run(&Cluster::start().url());
}
