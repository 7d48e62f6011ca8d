//! One table of local counters.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{Algorithm, Ask, Charge, ClaimId, Key, Limit, Slot, Span, State, Timestamp};

use super::share;
use crate::guarded::owned::{Deed, Errand, Owing, OwnedKey};

/// How many counters are looked at for a stale one when there is no room for another.
const STEPS_WHEN_FULL: usize = 8;
/// How many are looked at in one round of telling.
const STEPS_OF_A_ROUND: usize = 256;

/// Counters, and the order in which they are looked at.
#[derive(Debug)]
pub(super) struct Table {
    counters: HashMap<u128, Counter, foldhash::fast::RandomState>,
    /// The key of every counter, once; whoever was looked at goes to the back.
    order: VecDeque<u128>,
    /// How many counters owe something.
    owing: usize,
    most: usize,
}

#[derive(Debug)]
struct Counter {
    key: OwnedKey,
    /// The whole limit, as it was last charged.
    limit: Limit,
    state: State,
    stale_at: Timestamp,
    owed: Owed,
}

/// What was counted here and the store was not told.
#[derive(Debug)]
enum Owed {
    Units(u64),
    /// Each hold has a name, under which it will be released, and expires: the oldest first.
    Holds(VecDeque<(ClaimId, Timestamp)>),
}

impl Table {
    pub(super) fn new(most: usize) -> Table {
        Table { counters: HashMap::default(), order: VecDeque::new(), owing: 0, most }
    }

    /// How many counters there are, and how many owe something.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.counters.len(), self.owing)
    }

    /// Whether a charge has a counter, or there is room for one. Nothing is given back to a counter that is not there.
    pub(super) fn keeps(&mut self, key: u128, charge: &Charge<'_>, now: Timestamp) -> bool {
        if let Some(counter) = self.counters.get_mut(&key) {
            if counter.limit != *charge.limit {
                counter.limit = charge.limit.clone();
            }
            return true;
        }
        if matches!(charge.ask, Ask::Return { .. }) || !self.has_room(now) {
            return false;
        }
        let owed = match charge.limit.algorithm() {
            Algorithm::Concurrency => Owed::Holds(VecDeque::new()),
            _ => Owed::Units(0),
        };
        let counter = Counter {
            key: OwnedKey::of(&charge.key),
            limit: charge.limit.clone(),
            state: State::Fresh,
            // Not at once: the rest of this claim must not take its place.
            stale_at: now.after(Span::from_micros(1)),
            owed,
        };
        self.counters.insert(key, counter);
        self.order.push_back(key);
        true
    }

    /// Whether a counter owes units that the store was not told of.
    pub(super) fn owes_units(&self, key: u128) -> bool {
        self.counters.get(&key).is_some_and(|counter| matches!(counter.owed, Owed::Units(1..)))
    }

    /// Forgets a counter.
    pub(super) fn remove(&mut self, key: u128) {
        if let Some(gone) = self.counters.remove(&key) {
            self.owing -= usize::from(gone.owed.is_some());
            self.order.retain(|other| *other != key);
        }
    }

    /// A state on loan.
    pub(super) fn lend(&mut self, key: u128) -> Slot {
        let lent = self.counters.get_mut(&key).map(|it| Slot::new(std::mem::take(&mut it.state), it.stale_at));
        lent.unwrap_or_default()
    }

    /// What was lent. A slot that stands for an earlier one has nothing to bring back.
    pub(super) fn take_back(&mut self, key: u128, slot: Slot) {
        if let Some(counter) = self.counters.get_mut(&key).filter(|_| slot.state != State::Fresh) {
            (counter.state, counter.stale_at) = (slot.state, slot.stale_at);
        }
    }

    /// Notes what a charge took or gave back.
    pub(super) fn owe(&mut self, key: u128, by: ClaimId, charge: &Charge<'_>, units: u64, now: Timestamp) {
        if let Some(counter) = self.counters.get_mut(&key).filter(|_| units > 0) {
            let before = counter.owed.is_some();
            match charge.ask {
                Ask::Return { .. } => counter.owed.subtract(by, units),
                _ => counter.owed.add(by, units, now, now.after(charge.limit.period().span())),
            }
            self.owing = self.owing + usize::from(counter.owed.is_some()) - usize::from(before);
        }
    }

    /// Adds what the store should be told, until there are so many errands; counters that are stale go.
    pub(super) fn tell(
        &mut self,
        most: usize,
        replicas: u64,
        now: Timestamp,
        can_be_told: &impl Fn(&Key<'_>) -> bool,
        errands: &mut Vec<Errand>,
    ) {
        for _ in 0..self.order.len().min(STEPS_OF_A_ROUND) {
            if errands.len() >= most {
                return;
            }
            let Some(key) = self.step(now) else { continue };
            let Some(counter) = self.counters.get_mut(&key) else { continue };
            if counter.owed.is_some() && can_be_told(&counter.key.key()) {
                counter.tell(most, replicas, now, errands);
                self.owing -= usize::from(!counter.owed.is_some());
            }
        }
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        for _ in 0..STEPS_WHEN_FULL {
            if self.counters.len() < self.most {
                return true;
            }
            self.step(now);
        }
        self.counters.len() < self.most
    }

    /// Looks at the next counter: removes it if it is stale, else says which it is.
    fn step(&mut self, now: Timestamp) -> Option<u128> {
        let key = self.order.pop_front()?;
        let is_stale = self.counters.get(&key).is_none_or(|counter| counter.stale_at <= now);
        if !is_stale {
            self.order.push_back(key);
            return Some(key);
        }
        let gone = self.counters.remove(&key);
        self.owing -= usize::from(gone.is_some_and(|counter| counter.owed.is_some()));
        None
    }
}

impl Counter {
    /// Adds claims that debit what is owed and still counts.
    fn tell(&mut self, most: usize, replicas: u64, now: Timestamp, errands: &mut Vec<Errand>) {
        let share = share(&self.limit, replicas);
        let tick = self.state.advance(&share, share.period().tick().at(now)).now;
        match &mut self.owed {
            Owed::Units(owed) => {
                let counted = match self.state.available(&share, tick) {
                    Some(left) => share.quota().saturating_sub(left),
                    None => u64::MAX,
                };
                let units = std::mem::take(owed).min(counted);
                if units > 0 {
                    errands.push(self.debit(ClaimId(fastrand::u128(..)), units, now));
                }
            }
            Owed::Holds(owed) => {
                let told = owed.len().min(most.saturating_sub(errands.len()));
                let told: Vec<(ClaimId, Timestamp)> = owed.drain(..told).collect();
                let live = told.into_iter().filter(|(_, until)| *until > now);
                errands.extend(live.map(|(by, _)| self.debit(by, 1, now)));
            }
        }
    }

    fn debit(&self, id: ClaimId, units: u64, now: Timestamp) -> Errand {
        let owing = Owing { key: self.key.clone(), limit: self.limit.clone(), ask: Ask::Regardless, units };
        Errand { id, charges: vec![owing], deed: Deed::Bare, until: now.after(self.limit.period().span()) }
    }
}

impl Owed {
    fn is_some(&self) -> bool {
        match self {
            Owed::Units(units) => *units > 0,
            Owed::Holds(holds) => !holds.is_empty(),
        }
    }

    fn add(&mut self, by: ClaimId, units: u64, now: Timestamp, until: Timestamp) {
        self.subtract(by, 0);
        match self {
            Owed::Units(owed) => *owed = owed.saturating_add(units),
            Owed::Holds(holds) => {
                let is_over = |oldest: &(ClaimId, Timestamp)| oldest.1 <= now;
                while holds.front().is_some_and(is_over) || holds.len() as u64 >= Limit::MOST_ENTRIES {
                    holds.pop_front();
                }
                holds.push_back((by, until));
            }
        }
    }

    fn subtract(&mut self, by: ClaimId, units: u64) {
        match self {
            Owed::Units(owed) => *owed = owed.saturating_sub(units),
            Owed::Holds(holds) => holds.retain(|(held, _)| *held != by),
        }
    }
}
