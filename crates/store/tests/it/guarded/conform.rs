//! The conformance suite: on one location, on shards where every claim on several keys touches several locations, and on
//! regions among which the keys are spread.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Claim, Key, RegionNames, Settlement, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::{GuardConfig, Guarded, ManualClock, OtherRegion, Regions, Store};

use tollgate_store::sharded::MemoryShards;

/// Drives the timers of claims that wait for each other.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap());

struct Guard {
    store: Entered<Guarded<MemoryShards<ManualClock>, ManualClock>>,
    clock: ManualClock,
}

/// A store that uses the timers of the runtime on any thread.
struct Entered<S>(S);

impl<S: Store> Store for Entered<S> {
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
    type Store = Entered<Guarded<MemoryShards<ManualClock>, ManualClock>>;

    fn store(&self) -> &Self::Store {
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

/// Two other regions, and keys that each belong to one of the three.
struct Spread {
    store: Entered<SpreadStore>,
    clock: ManualClock,
}

/// Puts every key in the region that owns it.
struct SpreadStore {
    guard: Guarded<Regions<MemoryShards<ManualClock>>, ManualClock>,
    names: RegionNames,
}

impl SpreadStore {
    fn place<'a>(&self, key: &Key<'a>) -> Key<'a> {
        key.clone().in_region(self.names.home_of(key.home_hash()))
    }
}

impl Store for SpreadStore {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let mut claim = claim.clone();
        for charge in &mut claim.charges {
            charge.key = self.place(&charge.key);
        }
        if let Some(once) = &mut claim.once {
            once.key = self.place(&once.key);
        }
        self.guard.settle_into(&claim, settlement).await;
    }
}

impl Subject for Spread {
    type Store = Entered<SpreadStore>;

    fn store(&self) -> &Entered<SpreadStore> {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }
}

fn guard_of_regions() -> Spread {
    let clock = ManualClock::default();
    // A busy machine is not a failure.
    let deadline = Duration::from_secs(60);
    let config = GuardConfig { deadline, ..GuardConfig::default() };
    let shards = |shards| MemoryShards::new(shards, 16_384, clock.clone());
    let other = |name: &str, count| OtherRegion { name: name.to_owned(), store: shards(count), deadline };
    let regions = Regions::new(shards(2), [other("b", 1), other("c", 3)]);
    let guard = Guarded::with_clock(regions, config, clock.clone());
    let names = RegionNames::new("a", ["b", "c"]).unwrap();
    Spread { store: Entered(SpreadStore { guard, names }), clock }
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
conform!(regions, guard_of_regions);
