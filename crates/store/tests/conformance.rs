//! The conformance suite, on the core alone and on the in-memory store.

use tollgate_core::Timestamp;
use tollgate_store::conformance::{self, Subject, reference::Reference};
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore};

struct Memory {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
}

impl Subject for Memory {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }
}

/// A store with several shards, small enough that a test can make hundreds of them.
fn memory() -> Memory {
    let clock = ManualClock::default();
    let config = MemoryConfig { max_keys: 20_000, max_once: 10_000 };
    Memory { store: config.build_with(clock.clone()), clock }
}

/// The parts of the suite as tests of their own, so that each is reported by itself.
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

conform!(core, Reference::default);
conform!(memory, memory);
