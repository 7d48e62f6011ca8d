//! The suite of all stores, with debits in other regions.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use tollgate_core::{Claim, GlobalTerms, Key, RegionId, RegionLink, RegionShare, Scope, Settlement, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::{DebitConfig, DebitOutbox, ManualClock, MemoryConfig, Store};

use super::world::*;

/// Makes all limits global.
struct AllGlobal(Server);

impl Store for AllGlobal {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let global = |key: &Key<'_>| -> &'static Scope {
            static SCOPES: LazyLock<Mutex<HashMap<String, &'static Scope>>> = LazyLock::new(Mutex::default);
            let name = format!("{:?}", key.scope());
            let scope = || {
                let terms = GlobalTerms { debit_threshold: 0, ..GlobalTerms::default() };
                let scope: &'static Scope = Box::leak(Box::new(key.scope().clone().with_global(Some(terms))));
                scope
            };
            SCOPES.lock().unwrap().entry(name).or_insert_with(scope)
        };
        let mut global_claim = claim.clone();
        for charge in &mut global_claim.charges {
            charge.key = Key::new(global(&charge.key), charge.key.values().iter().copied().collect());
        }
        self.0.settle_into(&global_claim, settlement).await;
        // What the suite compares is the answer.
        (settlement.link, settlement.lowered_to) = (RegionLink::Together, RegionShare::WHOLE);
        self.0.maintain().await;
    }
}

struct Conforming {
    store: AllGlobal,
    clock: ManualClock,
}

impl Subject for Conforming {
    type Store = AllGlobal;

    fn store(&self) -> &AllGlobal {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }
}

/// A region whose other ones are fine, or can't be reached.
fn conforming(way: Way) -> Conforming {
    let clock = ManualClock::default();
    let config = MemoryConfig { max_keys: 20_000, max_once: 10_000, ..MemoryConfig::default() };
    let stores: Vec<Memory> = (0..2).map(|_| Arc::new(config.build_with(clock.clone()))).collect();
    let courier = TestCourier { stores: stores.clone(), ways: vec![Mutex::default(), Mutex::new(way)] };
    let others = vec![(RegionId::new(1), "west".to_owned())];
    let server = DebitOutbox::with_clock(stores[0].clone(), courier, DebitConfig::default(), others, clock.clone());
    Conforming { store: AllGlobal(server), clock }
}

macro_rules! conform {
    ($name:ident, $way:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn traces() {
                conformance::trace::run(|| conforming($way));
            }

            #[test]
            fn atomicity() {
                conformance::atomicity::run(|| conforming($way));
            }

            #[test]
            fn concurrency() {
                conformance::concurrency::run(|| conforming($way));
            }

            #[test]
            fn idempotency() {
                conformance::idempotency::run(|| conforming($way));
            }

            #[test]
            fn expiry() {
                conformance::expiry::run(|| conforming($way));
            }

            #[test]
            fn refunds() {
                conformance::refunds::run(|| conforming($way));
            }
        }
    };
}

conform!(together, Way::Open);
conform!(apart, Way::Broken);
