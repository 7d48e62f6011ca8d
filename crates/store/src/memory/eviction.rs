//! The search for a counter to evict.

use tollgate_core::Timestamp;

use super::hash::Fingerprint;
use super::shares::{Claimant, ScopeShares};
use super::table::SweptCounter;
use super::worth::Worth;

/// The counters of least worth that a scope may replace, among those that were found so far.
#[derive(Debug)]
pub(super) struct VictimSearch {
    claimant: Claimant,
    best: Option<Victim>,
    /// In place of `best`, as long as none is found.
    instead: Option<Victim>,
}

/// Of equal worth, the one that is stale soonest goes first.
#[derive(Clone, Copy, Debug)]
struct Victim {
    worth: Worth,
    stale_at: Timestamp,
    key: Fingerprint,
}

impl VictimSearch {
    pub(super) fn new(claimant: Claimant) -> VictimSearch {
        VictimSearch { claimant, best: None, instead: None }
    }

    pub(super) fn consider(&mut self, shares: &ScopeShares, found: &SweptCounter) {
        let scope = found.tag.scope;
        let place = if shares.may_replace(&self.claimant, scope) {
            &mut self.best
        } else if shares.may_replace_instead(&self.claimant, scope) {
            &mut self.instead
        } else {
            return;
        };
        let victim = Victim { worth: found.tag.worth, stale_at: found.stale_at, key: found.key };
        if place.is_none_or(|best| (victim.worth, victim.stale_at) < (best.worth, best.stale_at)) {
            *place = Some(victim);
        }
    }

    /// The counter to evict, if there is one that does not refuse.
    pub(super) fn yielding(&self) -> Option<Fingerprint> {
        self.best.or(self.instead).filter(|victim| !victim.worth.refuses()).map(|victim| victim.key)
    }

    /// The counter to evict if all of them refuse.
    pub(super) fn refusing(&self) -> Option<Fingerprint> {
        self.best.map(|victim| victim.key)
    }
}
