//! The scopes of a rule's counters under overrides: over periods that no file has.

use std::sync::OnceLock;

use tollgate_core::{Algorithm, Limit, Period, Scope};

/// The scopes of a rule's counters over periods that no file has. Each is created once and lives as long as the rule.
#[derive(Debug, Default)]
pub(crate) struct OtherScopes {
    first: OnceLock<Box<OtherScope>>,
}

#[derive(Debug)]
struct OtherScope {
    algorithm: Algorithm,
    period: Period,
    scope: Scope,
    next: OnceLock<Box<OtherScope>>,
}

impl OtherScopes {
    /// The scope of counters with such a limit.
    pub(crate) fn get_or_create(&self, own: &Scope, limit: &Limit) -> &Scope {
        let mut slot = &self.first;
        loop {
            let other = slot.get_or_init(|| {
                let (algorithm, period) = (limit.algorithm(), limit.period().clone());
                let scope = Scope::new(own.domain(), own.rule(), algorithm, &period, own.home());
                let scope = scope.with_private(own.private()).with_global(own.global()).with_owner(own.is_owned());
                Box::new(OtherScope { algorithm, period, scope, next: OnceLock::new() })
            });
            if same_states(other.algorithm, limit.algorithm()) && other.period == *limit.period() {
                return &other.scope;
            }
            slot = &other.next;
        }
    }

    /// The scope with this digest, with a limit of this amount.
    pub(crate) fn find(&self, digest: u64, amount: u64) -> Option<(Limit, &Scope)> {
        let mut slot = &self.first;
        while let Some(other) = slot.get() {
            if other.scope.short() == digest {
                let algorithm = match other.algorithm {
                    Algorithm::Bucket { paced, .. } => Algorithm::Bucket { burst: amount, paced },
                    algorithm => algorithm,
                };
                return Some((Limit::new(amount, other.period.clone(), algorithm).ok()?, &other.scope));
            }
            slot = &other.next;
        }
        None
    }
}

/// Whether two algorithms have the same states: a burst is not part of a state.
pub(crate) fn same_states(one: Algorithm, other: Algorithm) -> bool {
    match (one, other) {
        (Algorithm::Bucket { .. }, Algorithm::Bucket { .. }) => true,
        (one, other) => one == other,
    }
}
