//! The simplest store that can be right: one lock, one map, the core. Others are compared with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Claim, Key, Reading, Replay, Settlement, Slot, Span, State, Timestamp, Verdict, Wait, settle};

use super::Subject;
use crate::{Clock, ManualClock, Store};

/// A store for tests. It never forgets a counter.
#[derive(Debug, Default)]
pub struct Reference {
    clock: ManualClock,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    states: HashMap<String, State>,
    settled: HashMap<String, Record>,
}

/// What was answered under a name.
#[derive(Clone, Debug)]
struct Record {
    body: u64,
    replay: Replay,
    settlement: Settlement,
    until: Timestamp,
}

impl Reference {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Reference {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        *settlement = self.settled(claim);
    }
}

impl Reference {
    fn settled(&self, claim: &Claim<'_>) -> Settlement {
        let mut kept = self.kept();
        let now = self.clock.now();
        let Some(once) = &claim.once else {
            return kept.settle(claim, now);
        };
        let name = text(&once.key);
        if let Some(record) = kept.settled.get(&name).filter(|record| now < record.until).cloned() {
            return match record.body == once.body {
                true => Settlement { replay: record.replay, ..record.settlement },
                false => kept.conflict(claim, now),
            };
        }
        let settlement = kept.settle(claim, now);
        let verdict = Verdict::reach(claim, &settlement);
        let until = match verdict.wait {
            Wait::For(span) => now.after(span.min(once.keep)),
            Wait::None | Wait::Forever => now.after(once.keep),
        };
        if once.keep == Span::ZERO {
            return settlement;
        }
        let replay = Replay::Again { terms: once.terms, passed: verdict.allowed };
        kept.settled.insert(name, Record { body: once.body, replay, settlement: settlement.clone(), until });
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

impl Kept {
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

    fn conflict(&self, claim: &Claim<'_>, now: Timestamp) -> Settlement {
        let mut look = claim.clone();
        for charge in &mut look.charges {
            (charge.ask, charge.units) = (tollgate_core::Ask::Exactly, 0);
        }
        let (_, mut slots) = self.load(&look);
        let found = settle(&look, &mut slots, now);
        let refused = |reading: Reading| Reading { admits: false, ..reading };
        Settlement { readings: found.readings.into_iter().map(refused).collect(), at: now, replay: Replay::Conflict }
    }

    fn load(&self, claim: &Claim<'_>) -> (Vec<String>, Vec<Slot>) {
        let names: Vec<String> = claim.charges.iter().map(|charge| text(&charge.key)).collect();
        let slot = |(at, name): (usize, &String)| match names[..at].iter().position(|earlier| earlier == name) {
            Some(earlier) => Slot::same_as(earlier),
            None => Slot::new(self.states.get(name).cloned().unwrap_or_default(), Timestamp::default()),
        };
        let slots = names.iter().enumerate().map(slot).collect();
        (names, slots)
    }
}

/// The key as a text that no other key has.
fn text(key: &Key<'_>) -> String {
    format!("{} {:?}", key.scope().name(), key.values())
}
