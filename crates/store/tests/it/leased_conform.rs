//! The conformance suite on a store with leases.
//!
//! Charges that may not be leased pass all of it. Leased ones pass what says how many units are admitted. They are not exact
//! where docs/leases.md says so: a reading is as old as the store's last answer, and a refusal may last a pause longer than
//! the store's wait.

use tollgate_core::{Algorithm, Claim, Limit, Settlement, Shortcuts, Timestamp};
use tollgate_store::conformance::{self, Subject};
use tollgate_store::{LeaseConfig, Leased, ManualClock, MemoryConfig, MemoryStore, Store};

struct LeasedSubject {
    store: Maintained,
    clock: ManualClock,
    is_leased: fn(&Limit) -> bool,
}

/// A store that does its background work after each claim.
struct Maintained(Leased<MemoryStore<ManualClock>, ManualClock>);

impl Store for Maintained {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.0.settle_into(claim, settlement).await;
        self.0.maintain().await;
    }
}

impl Subject for LeasedSubject {
    type Store = Maintained;

    fn store(&self) -> &Maintained {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn shortcuts(&self, limit: &Limit) -> Shortcuts {
        if (self.is_leased)(limit) { Shortcuts::Leases } else { Shortcuts::Refusals }
    }
}

fn subject(is_leased: fn(&Limit) -> bool) -> LeasedSubject {
    let clock = ManualClock::default();
    let config = MemoryConfig { max_keys: 20_000, max_once: 10_000, ..MemoryConfig::default() };
    let store = Leased::with_clock(config.build_with(clock.clone()), LeaseConfig::default(), clock.clone());
    LeasedSubject { store: Maintained(store), clock, is_leased }
}

/// Nothing is leased.
fn exact() -> LeasedSubject {
    subject(|_| false)
}

/// Only fixed windows are leased.
fn fixed() -> LeasedSubject {
    subject(|limit| limit.algorithm() == Algorithm::FixedWindow)
}

/// Everything is leased that may be.
fn all() -> LeasedSubject {
    subject(Limit::is_leasable)
}

macro_rules! runs {
    ($($name:ident: $subject:ident $($part:ident)::+;)*) => {
        $(
            #[test]
            fn $name() {
                conformance::$($part)::+($subject);
            }
        )*
    };
}

runs! {
    exact_charges_pass_everything: exact run;
    // Readings between two answers of the store, and waits, are exact for windows that do not slide.
    traces: fixed trace::run;
    one_without_room_stops_all: fixed atomicity::one_without_room_stops_all;
    refusals_change_nothing: all atomicity::a_refusal_changes_nothing;
    charges_on_one_key_are_summed: all atomicity::charges_on_one_key_are_summed;
    // Not in pieces: one unit may be held when a claim of two is refused.
    threads_are_admitted_up_to_the_limit: all concurrency::exactly_the_limit;
    threads_are_admitted_on_all_partitions_or_none: all concurrency::exactly_the_limit_over_partitions;
    idempotency: all idempotency::run;
    expiry: all expiry::run;
    refunds: all refunds::run;
}
