//! The conformance suite: on one location, and on shards where every claim on several keys touches several locations.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Claim, Settlement, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::{GuardConfig, Guarded, ManualClock, Store};

use tollgate_store::sharded::MemoryShards;

/// Drives the timers of claims that wait for each other.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap());

struct Guard {
    store: Entered,
    clock: ManualClock,
}

/// A store that uses the timers of the runtime on any thread.
struct Entered(Guarded<MemoryShards<ManualClock>, ManualClock>);

impl Store for Entered {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let mut settling = pin!(self.0.settle_into(claim, settlement));
        poll_fn(|context| {
            let _entered = RUNTIME.enter();
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
    }
}

fn guard(shards: usize, slots: u16) -> Guard {
    let clock = ManualClock::default();
    // A busy machine is not a failure.
    let config = GuardConfig { deadline: Duration::from_secs(60), ..GuardConfig::default() };
    let fleet = MemoryShards::new(shards, slots, clock.clone());
    Guard { store: Entered(Guarded::with_clock(fleet, config, clock.clone())), clock }
}

macro_rules! conform {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn traces() {
                conformance::trace::run($make);
            }

            #[test]
            fn atomicity() {
                conformance::atomicity::run($make);
            }

            #[test]
            fn concurrency() {
                conformance::concurrency::run($make);
            }

            #[test]
            fn idempotency() {
                conformance::idempotency::run($make);
            }

            #[test]
            fn expiry() {
                conformance::expiry::run($make);
            }
        }
    };
}

conform!(one_place, || guard(1, 1));
conform!(one_shard_of_slots, || guard(1, 16_384));
conform!(many_shards, || guard(7, 16_384));
