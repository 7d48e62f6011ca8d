//! Shared helpers of the tests.

use std::sync::Arc;

use tollgate::{Counters, Limiter, Ruleset};
use tollgate_store::conformance::gated::GatedStore;

/// A limiter whose store answers when the test lets it.
pub(crate) fn limiter_on(store: &Arc<GatedStore>, rules: Ruleset) -> Arc<Limiter<Counters>> {
    Arc::new(Limiter::new(rules, Counters::Shared(store.clone())))
}
