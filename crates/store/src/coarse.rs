//! Coarse counters: one for each rule, shared by all of its keys for which there is no room to count them one by one.
//! Together these keys get the limit of one key.

use std::collections::HashMap;

use tollgate_core::{CounterState, Scope, StateSlot, Timestamp};

/// The maximum number of coarse counters.
pub(crate) const MAX_COARSE: usize = 1_024;

/// The coarse counters of a store, by the digests of their rules' scopes.
#[derive(Debug, Default)]
pub(crate) struct CoarseCounters {
    counters: HashMap<u128, CoarseCounter, foldhash::fast::RandomState>,
    settled: u64,
}

#[derive(Debug)]
struct CoarseCounter {
    state: CounterState,
    stale_at: Timestamp,
}

impl CoarseCounters {
    /// The number of charges that were settled on coarse counters.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether keys of this rule were counted together and still matter.
    pub(crate) fn contains(&self, scope: &Scope, now: Timestamp) -> bool {
        self.counters.get(&scope.digest()).is_some_and(|counter| counter.stale_at > now)
    }

    /// Lends the state of a rule's counter. `None` if there are too many rules.
    pub(crate) fn lend(&mut self, scope: &Scope, now: Timestamp) -> Option<StateSlot> {
        if let Some(counter) = self.counters.get_mut(&scope.digest()) {
            return Some(StateSlot::new(std::mem::take(&mut counter.state), counter.stale_at));
        }
        if self.counters.len() >= MAX_COARSE {
            self.counters.retain(|_, counter| counter.stale_at > now);
        }
        (self.counters.len() < MAX_COARSE).then(StateSlot::default)
    }

    /// Takes back a state.
    pub(crate) fn take_back(&mut self, scope: &Scope, slot: StateSlot) {
        let StateSlot { state, stale_at, changed, .. } = slot;
        self.settled += u64::from(changed);
        match self.counters.get_mut(&scope.digest()) {
            Some(counter) => *counter = CoarseCounter { state, stale_at },
            None if changed => drop(self.counters.insert(scope.digest(), CoarseCounter { state, stale_at })),
            None => {}
        }
    }
}
