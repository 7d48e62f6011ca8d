//! One counter: the holds of this server, and the number of those of the others.

use tollgate_core::algorithm::TickCharge;
use tollgate_core::{ClaimId, CounterState, Key, Limit, OwnedKey, StateSlot, Timestamp};

use super::report::Note;
use crate::clock::Steady;

#[derive(Debug)]
pub(super) struct Counter {
    pub(super) key: OwnedKey,
    /// The limit of the last charge. The lifetime of holds is that of all.
    limit: Limit,
    pub(super) state: CounterState,
    pub(super) stale_at: Timestamp,
    /// That of the key in reports, since the first report with it.
    pub(super) digest: Option<u128>,
    /// The requests in flight of the other servers. `None` until an answer has them.
    pub(super) others: Option<u64>,
    /// When it was last used.
    pub(super) used_at: Steady,
}

impl Counter {
    pub(super) fn new(key: &Key<'_>, limit: &Limit, now: Steady) -> Counter {
        Counter {
            key: OwnedKey::from(key),
            limit: limit.clone(),
            state: CounterState::Fresh,
            stale_at: Timestamp::default(),
            digest: None,
            others: None,
            used_at: now,
        }
    }

    /// Lends the state to a claim.
    pub(super) fn lend(&mut self, limit: &Limit, now: Steady) -> StateSlot {
        self.used_at = self.used_at.max(now);
        if self.limit.period() != limit.period() {
            self.limit = limit.clone();
        }
        StateSlot::new(std::mem::take(&mut self.state), self.stale_at)
    }

    pub(super) fn take_back(&mut self, slot: StateSlot) {
        (self.state, self.stale_at) = (slot.state, slot.stale_at);
    }

    /// Whether a claim has a hold here, also one that has expired a moment ago.
    pub(super) fn holds(&self, by: ClaimId) -> bool {
        match &self.state {
            CounterState::Holds(holds) => holds.holds.iter().any(|hold| hold.by == by),
            _ => false,
        }
    }

    /// The requests in flight of this server.
    pub(super) fn here(&mut self, now: Timestamp) -> u64 {
        let tick = self.limit.period().tick().at(now);
        let now = self.state.advance(&self.limit, tick).now;
        self.state.used(&self.limit, now)
    }

    /// Does what another server notes.
    pub(super) fn apply(&mut self, note: Note, now: Timestamp) {
        let tick = self.limit.period().tick().at(now);
        let now = self.state.advance(&self.limit, tick).now;
        match note {
            Note::Release { by, .. } => {
                self.state.give_back(&TickCharge { limit: &self.limit, now, by, units: 1 }, 0);
            }
            Note::Renew { by, .. } if self.holds(by) => {
                self.state.spend(&TickCharge { limit: &self.limit, now, by, units: 1 });
            }
            Note::Renew { .. } => {}
            Note::Reset { .. } => self.state = CounterState::Fresh,
        }
    }
}
