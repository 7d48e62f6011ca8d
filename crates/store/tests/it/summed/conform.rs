//! The conformance suite on a server that counts by itself and is the only one: it must be as exact as the store.

use std::fs;
use std::path::Path;

use tollgate_core::{Algorithm, Limit, Shortcuts, Timestamp};
use tollgate_store::conformance::{self, Subject, trace};
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store as _, Summed};

struct SummedSubject {
    store: Summed<MemoryStore<ManualClock>, ManualClock>,
    clock: ManualClock,
}

impl Subject for SummedSubject {
    type Store = Summed<MemoryStore<ManualClock>, ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }

    fn shortcuts(&self, limit: &Limit) -> Shortcuts {
        if limit.algorithm() == Algorithm::Concurrency { Shortcuts::Summed } else { Shortcuts::Refusals }
    }
}

fn alone() -> SummedSubject {
    let clock = ManualClock::default();
    let config = MemoryConfig { max_keys: 20_000, max_once: 10_000, ..MemoryConfig::default() };
    SummedSubject { store: Summed::with_clock(config.build_with(clock.clone()), clock.clone()), clock }
}

/// The case in which two limits refuse. Where this server refuses by itself, it does not ask the store how long the other
/// wait would be.
const TWO_REFUSE: &str = "all or nothing over several algorithms";

#[test]
fn traces() {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces"));
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "trace"));
    let cases: Vec<_> = texts.flat_map(|path| trace::parse(&fs::read_to_string(path).unwrap()).unwrap()).collect();
    let skipped = cases.iter().filter(|case| case.name == TWO_REFUSE).count();
    for case in cases.iter().filter(|case| case.name != TWO_REFUSE) {
        trace::check(case, &alone()).unwrap();
    }
    assert_eq!((skipped, cases.len() > 50), (1, true));
}

// Of the suite's part on idempotency, three checks are not for holds that are counted here. A repeated claim gets the first
// verdict, but the numbers of this moment, which repetitions at the same time change; and a claim that leaves no record renews a
// hold, and takes none.
macro_rules! runs {
    ($($name:ident: $($part:ident)::+;)*) => {
        $(
            #[test]
            fn $name() {
                conformance::$($part)::+(alone);
            }
        )*
    };
}

runs! {
    atomicity: atomicity::run;
    concurrency: concurrency::run;
    another_body_is_a_conflict: idempotency::another_body_is_a_conflict;
    one_that_takes_nothing_is_decided_anew: idempotency::one_that_takes_nothing_is_decided_anew;
    other_terms_get_the_first_answer: idempotency::other_terms_get_the_first_answer;
    one_without_charges_is_recorded: idempotency::one_without_charges_is_recorded;
    settlements_take_effect_once: idempotency::settlements_take_effect_once;
    together_they_pay_once: idempotency::together_they_pay_once;
    expiry: expiry::run;
    refunds: refunds::run;
}

#[test]
fn it_never_waits_with_a_store_that_does_not() {
    assert!(alone().store.never_waits());
}
