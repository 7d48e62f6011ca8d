//! One table of local counters.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{Algorithm, Ask, Charge, ClaimId, CounterState, Key, Limit, OwnedKey, Span, StateSlot, Timestamp};

use super::continuation::continue_from;
use super::last_readings::LastReading;
use super::share;
use crate::guarded::deferred::DeferredClaim;

/// How many counters are checked for staleness when the table is full.
const STEPS_WHEN_FULL: usize = 8;
/// How many counters are checked in one round of debits.
const STEPS_OF_A_ROUND: usize = 256;

/// Counters, and the order in which they are checked.
#[derive(Debug)]
pub(super) struct LocalTable {
    counters: HashMap<u128, LocalCounter, foldhash::fast::RandomState>,
    /// The key of every counter, once. A checked counter moves to the back.
    order: VecDeque<u128>,
    /// The number of counters with debts.
    in_debt: usize,
    max: usize,
}

#[derive(Debug)]
struct LocalCounter {
    key: OwnedKey,
    /// The full limit, as of the last charge.
    limit: Limit,
    state: CounterState,
    stale_at: Timestamp,
    /// When the store was last read about it, as far as the state knows.
    read_at: Timestamp,
    debt: Debt,
}

/// Units that were counted here and not sent to the store.
#[derive(Debug)]
enum Debt {
    Units(u64),
    /// Holds with the claims that will release them and their expiry, oldest first.
    Holds(VecDeque<(ClaimId, Timestamp)>),
}

impl LocalTable {
    pub(super) fn new(max: usize) -> LocalTable {
        LocalTable { counters: HashMap::default(), order: VecDeque::new(), in_debt: 0, max }
    }

    /// The number of counters, and the number of those with debts.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.counters.len(), self.in_debt)
    }

    /// Ensures that a charge has a counter. Returns false if the table is full, or if the charge gives back units and
    /// has no counter.
    pub(super) fn ensure_counter(&mut self, key: u128, charge: &Charge<'_>, now: Timestamp) -> bool {
        if let Some(counter) = self.counters.get_mut(&key) {
            if counter.limit != *charge.limit {
                counter.limit = charge.limit.clone();
            }
            return true;
        }
        if matches!(charge.ask, Ask::Return { .. }) || !self.has_room(now) {
            return false;
        }
        let debt = match charge.limit.algorithm() {
            Algorithm::Concurrency => Debt::Holds(VecDeque::new()),
            _ => Debt::Units(0),
        };
        let counter = LocalCounter {
            key: OwnedKey::from(&charge.key),
            limit: charge.limit.clone(),
            state: CounterState::Fresh,
            // Not immediately stale: the rest of this claim must not evict it.
            stale_at: now.after(Span::from_micros(1)),
            read_at: Timestamp::default(),
            debt,
        };
        self.counters.insert(key, counter);
        self.order.push_back(key);
        true
    }

    /// Makes a counter continue from the store's last reading, unless it already does.
    pub(super) fn continue_from(&mut self, key: u128, last: &LastReading, share: &Limit) {
        if let Some(counter) = self.counters.get_mut(&key).filter(|counter| counter.read_at < last.at) {
            counter.read_at = last.at;
            continue_from(&mut counter.state, last, &counter.limit, share);
            let tick = share.period().tick();
            let report = counter.state.report(share, tick.at(last.at));
            counter.stale_at = counter.stale_at.max(tick.start(report.stale_at));
        }
    }

    /// Calls `each` with the key, the limit, the units left and the end of every counter that is not stale. The units are
    /// those that the store would have to have left for this server's share to be what it is.
    pub(super) fn for_each_left(
        &mut self,
        replicas: u64,
        now: Timestamp,
        mut each: impl FnMut(u128, &Limit, u64, Timestamp),
    ) {
        for (key, counter) in &mut self.counters {
            if counter.stale_at <= now || counter.limit.algorithm() == Algorithm::Concurrency {
                continue;
            }
            let share = share(&counter.limit, replicas);
            let tick = counter.state.advance(&share, share.period().tick().at(now)).now;
            let left = counter.state.available(&share, tick).unwrap_or(0);
            let left = u128::from(left) * u128::from(counter.limit.quota()) / u128::from(share.quota().max(1));
            each(*key, &counter.limit, left as u64, counter.stale_at);
        }
    }

    /// Whether the store has not received all units of a counter.
    pub(super) fn owes_units(&self, key: u128) -> bool {
        self.counters.get(&key).is_some_and(|counter| matches!(counter.debt, Debt::Units(1..)))
    }

    /// Forgets a counter.
    pub(super) fn remove(&mut self, key: u128) {
        if let Some(gone) = self.counters.remove(&key) {
            self.in_debt -= usize::from(gone.debt.is_some());
            self.order.retain(|other| *other != key);
        }
    }

    /// Lends a state.
    pub(super) fn lend(&mut self, key: u128) -> StateSlot {
        let lent = self.counters.get_mut(&key).map(|it| StateSlot::new(std::mem::take(&mut it.state), it.stale_at));
        lent.unwrap_or_default()
    }

    /// Takes back a state. A slot that shares an earlier one has no state of its own.
    pub(super) fn take_back(&mut self, key: u128, slot: StateSlot) {
        if let Some(counter) = self.counters.get_mut(&key).filter(|_| slot.state != CounterState::Fresh) {
            (counter.state, counter.stale_at) = (slot.state, slot.stale_at);
        }
    }

    /// Records the units that a charge took or gave back.
    pub(super) fn owe(&mut self, key: u128, by: ClaimId, charge: &Charge<'_>, units: u64, now: Timestamp) {
        if let Some(counter) = self.counters.get_mut(&key).filter(|_| units > 0) {
            let before = counter.debt.is_some();
            match charge.ask {
                Ask::Return { .. } => counter.debt.subtract(by, units),
                _ => counter.debt.add(by, units, now, now.after(charge.limit.period().span())),
            }
            self.in_debt = self.in_debt + usize::from(counter.debt.is_some()) - usize::from(before);
        }
    }

    /// Adds the units of a debit that was not received to the debt. Returns false if the counter is gone.
    pub(super) fn owe_again(&mut self, key: u128, by: ClaimId, units: u64, until: Timestamp) -> bool {
        let Some(counter) = self.counters.get_mut(&key) else { return false };
        self.in_debt += usize::from(!counter.debt.is_some());
        match &mut counter.debt {
            Debt::Units(debt) => *debt = debt.saturating_add(units),
            // The oldest is dropped at the bound, as when one is added.
            Debt::Holds(holds) if holds.len() as u64 >= Limit::MAX_ENTRIES => {}
            Debt::Holds(holds) => holds.push_front((by, until)),
        }
        true
    }

    /// Adds debits until there are `max` of them. Removes stale counters.
    pub(super) fn take_debits(
        &mut self,
        max: usize,
        replicas: u64,
        now: Timestamp,
        is_available: &impl Fn(&Key<'_>) -> bool,
        debits: &mut Vec<DeferredClaim>,
    ) {
        for _ in 0..self.order.len().min(STEPS_OF_A_ROUND) {
            if debits.len() >= max {
                return;
            }
            let Some(key) = self.step(now) else { continue };
            let Some(counter) = self.counters.get_mut(&key) else { continue };
            if counter.debt.is_some() && is_available(&counter.key.key()) {
                counter.take_debits(max, replicas, now, debits);
                self.in_debt -= usize::from(!counter.debt.is_some());
            }
        }
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        for _ in 0..STEPS_WHEN_FULL {
            if self.counters.len() < self.max {
                return true;
            }
            self.step(now);
        }
        self.counters.len() < self.max
    }

    /// Checks the next counter: removes it if it is stale, otherwise returns its key.
    fn step(&mut self, now: Timestamp) -> Option<u128> {
        let key = self.order.pop_front()?;
        let is_stale = self.counters.get(&key).is_none_or(|counter| counter.stale_at <= now);
        if !is_stale {
            self.order.push_back(key);
            return Some(key);
        }
        let gone = self.counters.remove(&key);
        self.in_debt -= usize::from(gone.is_some_and(|counter| counter.debt.is_some()));
        None
    }
}

impl LocalCounter {
    /// Adds claims that debit the units that are owed and still count.
    fn take_debits(&mut self, max: usize, replicas: u64, now: Timestamp, debits: &mut Vec<DeferredClaim>) {
        let share = share(&self.limit, replicas);
        let tick = self.state.advance(&share, share.period().tick().at(now)).now;
        match &mut self.debt {
            Debt::Units(debt) => {
                let counted = match self.state.available(&share, tick) {
                    Some(left) => share.quota().saturating_sub(left),
                    None => u64::MAX,
                };
                let units = std::mem::take(debt).min(counted);
                if units > 0 {
                    debits.push(self.debit(ClaimId(fastrand::u128(..)), units, now));
                }
            }
            Debt::Holds(debt) => {
                let sent = debt.len().min(max.saturating_sub(debits.len()));
                let sent: Vec<(ClaimId, Timestamp)> = debt.drain(..sent).collect();
                let live = sent.into_iter().filter(|(_, until)| *until > now);
                debits.extend(live.map(|(by, _)| self.debit(by, 1, now)));
            }
        }
    }

    fn debit(&self, id: ClaimId, units: u64, now: Timestamp) -> DeferredClaim {
        DeferredClaim::debit(id, self.key.clone(), &self.limit, units, now)
    }
}

impl Debt {
    fn is_some(&self) -> bool {
        match self {
            Debt::Units(units) => *units > 0,
            Debt::Holds(holds) => !holds.is_empty(),
        }
    }

    fn add(&mut self, by: ClaimId, units: u64, now: Timestamp, until: Timestamp) {
        self.subtract(by, 0);
        match self {
            Debt::Units(debt) => *debt = debt.saturating_add(units),
            Debt::Holds(holds) => {
                let is_expired = |oldest: &(ClaimId, Timestamp)| oldest.1 <= now;
                while holds.front().is_some_and(is_expired) || holds.len() as u64 >= Limit::MAX_ENTRIES {
                    holds.pop_front();
                }
                holds.push_back((by, until));
            }
        }
    }

    fn subtract(&mut self, by: ClaimId, units: u64) {
        match self {
            Debt::Units(debt) => *debt = debt.saturating_sub(units),
            Debt::Holds(holds) => holds.retain(|(holder, _)| *holder != by),
        }
    }
}
