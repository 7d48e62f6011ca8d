//! The conformance suite on the core alone.

use tollgate_store::conformance::{self, reference::Reference};

#[test]
fn traces() {
    conformance::trace::run(Reference::default);
}

#[test]
fn atomicity() {
    conformance::atomicity::run(Reference::default);
}

#[test]
fn concurrency() {
    conformance::concurrency::run(Reference::default);
}

#[test]
fn idempotency() {
    conformance::idempotency::run(Reference::default);
}

#[test]
fn expiry() {
    conformance::expiry::run(Reference::default);
}
