//! The conformance suite on the guarded store over real servers: one by itself, and a cluster, in which most claims on several keys
//! are settled in parts.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tollgate_core::{Claim, Settlement, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::redis::{RedisConfig, RedisStore};
use tollgate_store::{GuardConfig, Guarded, ManualClock, Store};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

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

/// Runs the suite; each of its stores has names of its own.
fn run(url: &str) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let stores = Cell::new(0);
    conformance::run(|| {
        stores.set(stores.get() + 1);
        let tended = Tended::new(RedisConfig { prefix: format!("t{}:", stores.get()), ..config(url) });
        // A busy machine is no failure.
        let config = GuardConfig { deadline: Duration::from_secs(60), ..GuardConfig::default() };
        let clock = ManualClock::default();
        let guard = Guarded::with_clock(tended.store.clone(), config, clock.clone());
        Guard { store: Entered { guard, runtime: runtime.handle().clone() }, clock, tended }
    });
}

#[test]
fn slow_the_guarded_store_conforms_on_one_server() {
    run(&Redis::start().url());
}

#[test]
fn slow_the_guarded_store_conforms_on_a_cluster() {
    run(&Cluster::start().url());
}
