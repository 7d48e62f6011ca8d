//! Checks that meet no rule.
//!
//! A typing error in an attribute's name goes unnoticed otherwise: the request passes, and nothing is limited.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::LogThrottle;

/// What all wires know of such checks.
#[derive(Debug, Default)]
pub struct UnmatchedChecks {
    checks: AtomicU64,
    /// Domains, and names of attributes.
    attributes: Mutex<BTreeSet<(String, String)>>,
    log: LogThrottle,
}

/// The maximum number of attributes that are remembered.
const MAX_ATTRIBUTES: usize = 32;
/// The maximum length of a remembered attribute, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 64;

impl UnmatchedChecks {
    /// Records a check of this domain that met no rule. `unknown` lists those of its attributes that no rule of the domain
    /// reads; it is called now and then.
    #[cold]
    pub fn report<'a, A: Iterator<Item = &'a str>>(&self, wire: &str, domain: &str, unknown: impl FnOnce() -> A) {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.log.log(|suppressed| {
            let unknown: Vec<String> = unknown().take(MAX_ATTRIBUTES).map(shortened).collect();
            if unknown.is_empty() {
                return;
            }
            tracing::warn!(
                wire,
                domain,
                attributes = unknown.join(", "),
                suppressed,
                "a check met no rule, and no rule reads these attributes of it: nothing was limited"
            );
            let mut known = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
            for name in unknown {
                if known.len() < MAX_ATTRIBUTES {
                    known.insert((domain.to_owned(), name));
                }
            }
        });
    }

    /// The number of such checks since the start.
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    /// Domains and attributes of such checks that no rule of the domain read at that time, a sample.
    pub fn attributes(&self) -> Vec<(String, String)> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn shortened(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_ATTRIBUTE_BYTES)].escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_looked_for_now_and_then() {
        let unmatched = UnmatchedChecks::default();
        let names: Vec<String> = (0..100).map(|number| format!("{number}-{}", "é".repeat(100))).collect();
        unmatched.report("http", "api", || names.iter().map(String::as_str));
        assert_eq!((unmatched.checks(), unmatched.attributes().len()), (1, MAX_ATTRIBUTES));
        assert!(unmatched.attributes().iter().all(|(_, name)| name.len() <= MAX_ATTRIBUTE_BYTES));
        unmatched.report("http", "api", || -> std::iter::Empty<&str> { panic!("too soon") });
        assert_eq!(unmatched.checks(), 2);
    }

    #[test]
    fn checks_whose_attributes_are_known_are_only_counted() {
        let unmatched = UnmatchedChecks::default();
        unmatched.report("grpc", "api", std::iter::empty);
        assert_eq!((unmatched.checks(), unmatched.attributes()), (1, Vec::new()));
    }
}
