//! How many counters of a shard belong to which rule, and whose counters a new one may replace.
//!
//! Rules are distinguished by the scopes of their keys. Touched only when a counter is added or removed, or begins or
//! ceases to refuse.

use std::collections::HashMap;

/// The counters of a shard by scope.
#[derive(Debug)]
pub(super) struct ScopeShares {
    /// The number of a scope by its digest.
    numbers: HashMap<u64, ScopeNumber, foldhash::fast::RandomState>,
    /// By number.
    scopes: Vec<ScopeShare>,
    /// Numbers of scopes without counters.
    free: Vec<ScopeNumber>,
}

/// A scope in one shard. It is assigned with the first counter and free again after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScopeNumber(pub(super) u16);

#[derive(Clone, Copy, Debug, Default)]
struct ScopeShare {
    digest: u64,
    counters: usize,
    /// Those of them that refuse.
    refusing: usize,
}

/// A scope that needs room for a new counter in a full shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    scope: Option<ScopeNumber>,
    counters: usize,
    /// What every scope may have, whatever the others have.
    guarantee: usize,
    /// What a scope may have at the expense of those that have more.
    share: usize,
}

/// The maximum number of scopes that are distinguished in a shard.
const MAX_SCOPES: usize = 1_024;
/// Shared by all scopes beyond the maximum, and by counters whose scope is not known.
const COMMON: ScopeNumber = ScopeNumber(0);
/// The digest of counters whose scope is not known.
pub(super) const UNKNOWN_SCOPE: u64 = 0;

impl Default for ScopeShares {
    fn default() -> ScopeShares {
        ScopeShares { numbers: HashMap::default(), scopes: vec![ScopeShare::default()], free: Vec::new() }
    }
}

impl ScopeShares {
    /// The number of a scope, assigned if necessary.
    pub(super) fn number(&mut self, digest: u64) -> ScopeNumber {
        if digest == UNKNOWN_SCOPE {
            return COMMON;
        }
        if let Some(number) = self.numbers.get(&digest) {
            return *number;
        }
        let share = ScopeShare { digest, ..ScopeShare::default() };
        let number = match self.free.pop() {
            Some(number) => {
                self.scopes[usize::from(number.0)] = share;
                number
            }
            None if self.scopes.len() < MAX_SCOPES => {
                self.scopes.push(share);
                ScopeNumber((self.scopes.len() - 1) as u16)
            }
            None => return COMMON,
        };
        self.numbers.insert(digest, number);
        number
    }

    /// The digest of a scope.
    pub(super) fn digest(&self, scope: ScopeNumber) -> u64 {
        self.scopes[usize::from(scope.0)].digest
    }

    /// Counts a new counter.
    pub(super) fn add(&mut self, scope: ScopeNumber, refuses: bool) {
        let share = &mut self.scopes[usize::from(scope.0)];
        share.counters += 1;
        share.refusing += usize::from(refuses);
    }

    /// Counts a counter that was removed.
    pub(super) fn remove(&mut self, scope: ScopeNumber, refused: bool) {
        let share = &mut self.scopes[usize::from(scope.0)];
        share.counters -= 1;
        share.refusing -= usize::from(refused);
        if share.counters == 0 && scope != COMMON {
            self.numbers.remove(&share.digest);
            self.free.push(scope);
        }
    }

    /// Counts a counter that began or ceased to refuse.
    #[cold]
    pub(super) fn turn(&mut self, scope: ScopeNumber, refuses: bool) {
        let share = &mut self.scopes[usize::from(scope.0)];
        if refuses {
            share.refusing += 1;
        } else {
            share.refusing -= 1;
        }
    }

    /// A scope that needs room in a shard of `max` counters, of which a scope's share is `share`.
    pub(super) fn claimant(&self, digest: u64, max: usize, share: usize) -> Claimant {
        let is_common = self.numbers.len() >= MAX_SCOPES - 1 && !self.numbers.contains_key(&digest);
        let scope = if is_common { Some(COMMON) } else { self.numbers.get(&digest).copied() };
        let is_new = usize::from(scope.is_none());
        let used = self.scopes.iter().filter(|share| share.counters > 0).count() + is_new;
        let guarantee = max / (2 * used.max(1));
        Claimant { scope, counters: scope.map_or(0, |scope| self.counters(scope)), guarantee, share }
    }

    /// Whether there is a counter that the claimant may replace and that does not refuse.
    pub(super) fn has_yielding(&self, claimant: &Claimant) -> bool {
        let all = self.scopes.iter().enumerate();
        let mut replaceable = all.filter(|(at, _)| self.may_replace(claimant, ScopeNumber(*at as u16)));
        replaceable.any(|(_, share)| share.counters > share.refusing)
    }

    /// Whether the claimant may replace counters of a scope. Below its guarantee it takes from those beyond theirs.
    /// Otherwise it replaces its own counters or, below its share, those of scopes beyond their share.
    pub(super) fn may_replace(&self, claimant: &Claimant, scope: ScopeNumber) -> bool {
        let theirs = self.counters(scope);
        if claimant.is_below_guarantee() {
            return theirs > claimant.guarantee;
        }
        claimant.scope == Some(scope) || (claimant.counters < claimant.share && theirs > claimant.share)
    }

    /// Whether the claimant may replace counters of a scope if none of its own are found. They are hard to find as long
    /// as they are few among many.
    pub(super) fn may_replace_instead(&self, claimant: &Claimant, scope: ScopeNumber) -> bool {
        claimant.counters < claimant.share && self.counters(scope) > claimant.counters.max(claimant.guarantee)
    }

    fn counters(&self, scope: ScopeNumber) -> usize {
        self.scopes[usize::from(scope.0)].counters
    }
}

impl Claimant {
    pub(super) fn is_below_guarantee(&self) -> bool {
        self.counters < self.guarantee
    }
}
