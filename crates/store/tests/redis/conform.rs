//! The conformance suite on the guarded store over real servers: one by itself, and a cluster, in which most claims on several keys
//! are settled in parts. And the same on memory and on these, event by event.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::{Builder, Handle, Runtime};
use tollgate_core::{Claim, Settlement, Span, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::redis::{RedisConfig, RedisStore};
use tollgate_store::{GuardConfig, Guarded, ManualClock, MemoryConfig, Store};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::steps::endings::{Play, compare, events};
use crate::{Tended, config};

struct Guard {
    store: Entered,
    clock: ManualClock,
    tended: Tended,
}

/// A store whose timers and connections are the runtime's, on whichever thread it is asked.
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
        self.tended.store.set_now(now);
    }
}

impl Guard {
    /// One whose names begin so.
    fn at(url: &str, prefix: String, runtime: &Handle) -> Guard {
        let _entered = runtime.enter();
        let tended = Tended::new(RedisConfig { prefix, ..config(url) });
        // A busy machine is no failure.
        let config = GuardConfig { deadline: Duration::from_secs(60), ..GuardConfig::default() };
        let clock = ManualClock::default();
        let guard = Guarded::with_clock(tended.store.clone(), config, clock.clone());
        Guard { store: Entered { guard, runtime: runtime.clone() }, clock, tended }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs the suite; each of its stores has names of its own.
fn run(url: &str) {
    let (runtime, stores) = (runtime(), Cell::new(0));
    conformance::run(|| {
        stores.set(stores.get() + 1);
        Guard::at(url, format!("t{}:", stores.get()), runtime.handle())
    });
}

/// Lets random requests begin, go on and end, in memory and in Redis: the same answers, and the same counters after each.
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
