//! The conformance suite on the reference and on the in-memory store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Ask, Charge, Claim, Replay, Settlement, Span, Timestamp};
use tollgate_store::conformance::{self, Subject, reference::Reference, trace};
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store};

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

/// A store with several shards, small enough to create hundreds of them.
fn memory() -> Memory {
    let clock = ManualClock::default();
    let config = MemoryConfig { max_keys: 20_000, max_once: 10_000, ..MemoryConfig::default() };
    Memory { store: config.build_with(clock.clone()), clock }
}

/// The parts of the suite as separate tests.
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

            #[test]
            fn refunds() {
                conformance::refunds::run($make);
            }
        }
    };
}

conform!(core, Reference::default);
conform!(memory, memory);

/// A store with one defect.
#[derive(Default)]
struct Faulty {
    right: Reference,
    other: Reference,
    fault: Option<Fault>,
    claims: AtomicU64,
}

#[derive(Clone, Copy)]
enum Fault {
    /// Settles each charge as a claim of its own.
    InPieces,
    /// Settles idempotent claims each time.
    Forgetful,
    /// Counts every other claim in another counter.
    Split,
    /// Takes a unit for a refusal.
    Greedy,
    /// Returns the terms of the repetition instead of the first terms.
    Agreeable,
    /// Returns a reading for each charge of the repetition.
    Fitting,
    /// Writes a record for every claim with an idempotency key.
    Hoarding,
    /// Writes no record for a claim without charges.
    Careless,
}

impl Store for Faulty {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let piece = |charge| Claim { id: claim.id, charges: [charge].into_iter().collect(), once: None, timeout: None };
        *settlement = match self.fault {
            Some(Fault::Careless) if claim.charges.is_empty() => {
                self.right.settle(&Claim { once: None, ..claim.clone() }).await
            }
            Some(Fault::Hoarding) => {
                let mut recorded = claim.clone();
                recorded.once.iter_mut().for_each(|once| once.keep = once.keep.max(Span::from_secs(1)));
                self.right.settle(&recorded).await
            }
            Some(Fault::Forgetful) => self.right.settle(&Claim { once: None, ..claim.clone() }).await,
            Some(Fault::Split) if self.claims.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                self.other.settle(claim).await
            }
            _ => self.right.settle(claim).await,
        };
        let refused = settlement.readings.iter().any(|reading| !reading.admits);
        match self.fault {
            Some(Fault::InPieces) if refused => {
                settlement.readings.clear();
                for charge in &claim.charges {
                    settlement.readings.extend(self.right.settle(&piece(charge.clone())).await.readings);
                }
            }
            Some(Fault::Agreeable) => {
                if let (Some(once), Replay::Again { terms, .. }) = (&claim.once, &mut settlement.replay) {
                    *terms = once.terms;
                }
            }
            Some(Fault::Fitting) => settlement.readings.truncate(claim.charges.len()),
            Some(Fault::Greedy) if refused && !claim.charges.is_empty() => {
                let fine = Charge { ask: Ask::Regardless, units: 1, ..claim.charges[0].clone() };
                self.right.settle(&piece(fine)).await;
            }
            _ => {}
        }
    }
}

impl Subject for Faulty {
    type Store = Faulty;

    fn store(&self) -> &Faulty {
        self
    }

    fn set_now(&self, now: Timestamp) {
        self.right.set_now(now);
        self.other.set_now(now);
    }
}

fn faulty(fault: Fault) -> impl Fn() -> Faulty {
    move || Faulty { fault: Some(fault), ..Faulty::default() }
}

#[track_caller]
fn assert_caught(part: impl Fn()) {
    assert!(catch_unwind(AssertUnwindSafe(part)).is_err(), "the suite passed a faulty store");
}

#[test]
fn the_suite_catches_faulty_stores() {
    assert_caught(|| conformance::atomicity::run(faulty(Fault::InPieces)));
    assert_caught(|| conformance::trace::run(faulty(Fault::InPieces)));
    for fault in [Fault::Forgetful, Fault::Agreeable, Fault::Fitting, Fault::Hoarding, Fault::Careless] {
        assert_caught(|| conformance::idempotency::run(faulty(fault)));
    }
    assert_caught(|| conformance::atomicity::a_refusal_changes_nothing(faulty(Fault::Greedy)));
    assert_caught(|| conformance::trace::run(faulty(Fault::Greedy)));
    assert_caught(|| conformance::concurrency::exactly_the_limit(faulty(Fault::Split)));
}

#[test]
fn a_trace_that_is_wrong_says_where_and_how() {
    let text = "limit f = 3/1m fixed_window\n\ncase one\n0 | f 1 | ok left 2\n\n0 | f 1 | ok left 2 reset 59s\n";
    let cases = trace::parse(text).unwrap();
    let said = trace::check(&cases[0], &Reference::default()).unwrap_err();
    let expected =
        "6: in \"one\": charge 1: expected\n    ok took 1 left 2 reset 59s\n  got\n    ok took 1 left 1 reset 1m";
    assert_eq!(said, expected);
}

#[test]
fn a_trace_that_cant_be_read_says_why() {
    for (row, said) in [
        ("0 | f 1 | ok", "a reading states what is left"),
        ("0 | f 1 | no left 0", "a refusal states its wait"),
        ("0 | f 1", "write: TIME | CHARGE, … | READING, …"),
        ("0 | g 1 | ok left 1", "there is no limit \"g\""),
        ("0 | f | ok left 1", "\"f\" says nothing of units"),
        ("0 | f 1, f 1 | ok left 1", "2 charges and 1 readings"),
        ("1x | f 1 | ok left 1", "\"1x\" is not a length of time; write for instance 1m30s, 250ms or 0"),
        ("limit f = 3/1m quick_window", "\"quick_window\" is not an algorithm"),
    ] {
        let text = format!("limit f = 3/1m fixed_window\ncase one\n{row}\n");
        assert_eq!(trace::parse(&text).err(), Some(format!("3: {said}")));
    }
}
