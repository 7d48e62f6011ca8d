//! The reference store: one lock, one map, the core. Other stores are compared with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Claim, CounterState, Key, Replay, Settlement, Span, StateSlot, Timestamp, Verdict, Wait, settle};

use super::Subject;
use crate::{Clock, ManualClock, Store};

/// A store for tests. It never drops a counter.
#[derive(Debug, Default)]
pub struct Reference {
    clock: ManualClock,
    state: Mutex<ReferenceState>,
}

#[derive(Debug, Default)]
struct ReferenceState {
    states: HashMap<String, CounterState>,
    settled: HashMap<String, SettledClaim>,
}

/// The answer to an idempotent claim.
#[derive(Clone, Debug)]
struct SettledClaim {
    body: u64,
    replay: Replay,
    settlement: Settlement,
    until: Timestamp,
}

impl Reference {
    fn state(&self) -> MutexGuard<'_, ReferenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Reference {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        *settlement = self.settle_claim(claim);
    }
}

impl Reference {
    fn settle_claim(&self, claim: &Claim<'_>) -> Settlement {
        let mut state = self.state();
        let now = self.clock.now();
        let Some(once) = &claim.once else {
            return state.settle(claim, now);
        };
        let name = text(&once.key);
        if let Some(record) = state.settled.get(&name).filter(|record| now < record.until).cloned() {
            return match record.body == once.body {
                true => Settlement { replay: record.replay, ..record.settlement },
                false => Settlement::conflict(claim, now),
            };
        }
        let settlement = state.settle(claim, now);
        let verdict = Verdict::reach(claim, &settlement);
        let until = match verdict.wait {
            Wait::For(span) => now.after(span.min(once.keep)),
            Wait::None | Wait::Forever => now.after(once.keep),
        };
        if once.keep == Span::ZERO || !settlement.needs_record(claim) {
            return settlement;
        }
        let replay = Replay::Again { terms: once.terms, passed: verdict.allowed };
        state.settled.insert(name, SettledClaim { body: once.body, replay, settlement: settlement.clone(), until });
        settlement
    }
}

impl Subject for Reference {
    type Store = Reference;

    fn store(&self) -> &Reference {
        self
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }
}

impl ReferenceState {
    fn settle(&mut self, claim: &Claim<'_>, now: Timestamp) -> Settlement {
        let (names, mut slots) = self.load(claim);
        let settlement = settle(claim, &mut slots, now);
        for (name, slot) in names.into_iter().zip(slots) {
            if slot.changed {
                self.states.insert(name, slot.state);
            }
        }
        settlement
    }

    fn load(&self, claim: &Claim<'_>) -> (Vec<String>, Vec<StateSlot>) {
        let names: Vec<String> = claim.charges.iter().map(|charge| text(&charge.key)).collect();
        let slot = |(at, name): (usize, &String)| match names[..at].iter().position(|earlier| earlier == name) {
            Some(earlier) => StateSlot::same_as(earlier),
            None => StateSlot::new(self.states.get(name).cloned().unwrap_or_default(), Timestamp::default()),
        };
        let slots = names.iter().enumerate().map(slot).collect();
        (names, slots)
    }
}

/// The key as a unique text.
fn text(key: &Key<'_>) -> String {
    format!("{} {:?}", key.scope().name(), key.values())
}
