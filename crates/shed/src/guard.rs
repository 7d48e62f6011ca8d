//! A fault of a shedder, which must not be an outage.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `decide` returns; `otherwise` if it panics. Whoever refuses requests by a shedder calls it in here, and admits otherwise.
pub fn guarded<T>(decide: impl FnOnce() -> T, otherwise: T) -> T {
    catch_unwind(AssertUnwindSafe(decide)).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shedder_that_panics_refuses_nothing() {
        assert!(guarded(|| panic!("a fault"), true));
        assert!(!guarded(|| false, true));
    }
}
