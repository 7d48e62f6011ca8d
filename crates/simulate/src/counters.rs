//! The counters of all keys: as the store has them, as requests were admitted, and as an exact fleet would have them.

use smallvec::SmallVec;
use tollgate_core::algorithm::TickCharge;
use tollgate_core::key::{Home, Scope};
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, CounterState, Key, Limit, Mode, OnFailure, Settlement, Shortcuts,
    StateSlot, Timestamp, Value, Vote, settle_charge, settle_into,
};

use crate::scenario::PlannedLimit;

/// A limit, and what its keys have in common.
#[derive(Debug)]
pub(crate) struct CountedLimit {
    pub(crate) limit: Limit,
    scope: Scope,
    is_global: bool,
    shortcuts: Shortcuts,
}

/// A request, as far as limits are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The rank of its key, from 0.
    pub(crate) key: u32,
    pub(crate) units: u32,
}

/// One counter.
#[derive(Debug, Default)]
struct Counter {
    /// The store's.
    stored: StateSlot,
    /// Spends at the moment of each decision.
    truth: CounterState,
    /// Decides all requests when they arrive, without leases.
    exact: StateSlot,
}

/// The counters of all limits.
#[derive(Debug)]
pub(crate) struct CounterTable {
    counters: Vec<Vec<Option<Box<Counter>>>>,
    slots: Vec<StateSlot>,
}

/// A counter before a write, for a failover.
#[derive(Debug)]
pub(crate) struct Undo {
    counter: CounterId,
    stored: StateSlot,
}

/// Identifies a counter: the limit and the rank of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterId {
    pub(crate) limit: usize,
    pub(crate) key: u32,
}

impl CountedLimit {
    pub(crate) fn new(number: usize, planned: &PlannedLimit) -> CountedLimit {
        let PlannedLimit { limit, is_global, is_leased, ahead } = planned;
        let name = format!("limit-{number}");
        CountedLimit {
            scope: Scope::new("simulated", &name, limit.algorithm(), limit.period(), Home::Own),
            limit: limit.clone(),
            is_global: *is_global,
            shortcuts: match *is_leased && limit.is_leasable() {
                true => ahead.map_or(Shortcuts::Leases, Shortcuts::Ahead),
                false => Shortcuts::None,
            },
        }
    }

    fn counter_of(&self, number: usize, key: u32) -> CounterId {
        CounterId { limit: number, key: if self.is_global { 0 } else { key } }
    }

    fn charge(&self, counter: CounterId, units: u64) -> Charge<'_> {
        let value = Value::Network { address: [counter.limit as u64, u64::from(counter.key)], prefix: 128 };
        Charge {
            key: Key::new(&self.scope, SmallVec::from_slice(&[value])),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: self.shortcuts,
        }
    }
}

/// The claim of a request.
pub(crate) fn claim_of(limits: &[CountedLimit], arrival: Arrival) -> Claim<'_> {
    let charges = limits.iter().enumerate();
    let charges =
        charges.map(|(number, limit)| limit.charge(limit.counter_of(number, arrival.key), u64::from(arrival.units)));
    Claim { id: ClaimId::default(), charges: charges.collect(), once: None, timeout: None }
}

/// The counter of a charge that [`claim_of`] or a pool made.
pub(crate) fn counter_of(charge: &Charge<'_>) -> CounterId {
    match charge.key.values() {
        [Value::Network { address: [limit, key], .. }] => CounterId { limit: *limit as usize, key: *key as u32 },
        _ => CounterId { limit: 0, key: 0 },
    }
}

impl CounterTable {
    pub(crate) fn new(limits: &[CountedLimit], keys: u64) -> CounterTable {
        let sizes = limits.iter().map(|limit| if limit.is_global { 1 } else { keys as usize });
        let counters = sizes.map(|size| (0..size).map(|_| None).collect()).collect();
        CounterTable { counters, slots: Vec::new() }
    }

    fn counter(&mut self, id: CounterId) -> &mut Counter {
        self.counters[id.limit][id.key as usize].get_or_insert_default()
    }

    /// Settles a claim in the store. What it changes is added to `undo`, if given.
    pub(crate) fn settle(
        &mut self,
        claim: &Claim<'_>,
        now: Timestamp,
        settlement: &mut Settlement,
        mut undo: Option<&mut Vec<Undo>>,
    ) {
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        for (at, charge) in claim.charges.iter().enumerate() {
            let id = counter_of(charge);
            let same = claim.charges[..at].iter().position(|earlier| counter_of(earlier) == id);
            slots.push(match same {
                Some(earlier) => StateSlot::same_as(earlier),
                None => {
                    let stored = &mut self.counter(id).stored;
                    if let Some(undo) = &mut undo {
                        undo.push(Undo { counter: id, stored: stored.clone() });
                    }
                    std::mem::take(stored)
                }
            });
        }
        settle_into(claim, &mut slots, now, settlement);
        for (at, (charge, slot)) in claim.charges.iter().zip(slots.drain(..)).enumerate() {
            let id = counter_of(charge);
            if !claim.charges[..at].iter().any(|earlier| counter_of(earlier) == id) {
                self.counter(id).stored = slot;
            }
        }
        self.slots = slots;
    }

    /// Decides a request exactly.
    pub(crate) fn decide_exactly(&mut self, claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) -> bool {
        if let [charge] = claim.charges.as_slice() {
            settle_charge(claim.id, charge, &mut self.counter(counter_of(charge)).exact, now, settlement);
            return passes(claim, settlement);
        }
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots.extend(claim.charges.iter().map(|charge| std::mem::take(&mut self.counter(counter_of(charge)).exact)));
        settle_into(claim, &mut slots, now, settlement);
        for (charge, slot) in claim.charges.iter().zip(slots.drain(..)) {
            self.counter(counter_of(charge)).exact = slot;
        }
        self.slots = slots;
        passes(claim, settlement)
    }

    /// Counts units that are admitted now. Returns by how many units the limit is exceeded.
    pub(crate) fn spend(&mut self, charge: &Charge<'_>, now: Timestamp) -> u64 {
        let truth = &mut self.counter(counter_of(charge)).truth;
        let charged = tick_charge(truth, charge, now);
        truth.spend(&charged);
        truth.used(charge.limit, charged.now).saturating_sub(charge.limit.quota())
    }

    /// How many more units are admitted than the store counts.
    pub(crate) fn uncovered(&mut self, charge: &Charge<'_>, now: Timestamp) -> u64 {
        let Counter { stored, truth, .. } = self.counter(counter_of(charge));
        let mut stored = stored.state.clone();
        let stored_now = tick_charge(&mut stored, charge, now).now;
        let truth_now = tick_charge(truth, charge, now).now;
        truth.used(charge.limit, truth_now).saturating_sub(stored.used(charge.limit, stored_now))
    }

    /// Takes back units that were counted as admitted, because another limit of the request refuses it.
    pub(crate) fn unspend(&mut self, charge: &Charge<'_>, taken_at: Timestamp, now: Timestamp) {
        let truth = &mut self.counter(counter_of(charge)).truth;
        let charged = tick_charge(truth, charge, now);
        match charge.limit.algorithm() {
            Algorithm::Bucket { .. } => truth.credit(&charged),
            _ => truth.give_back(&charged, charge.limit.period().tick().at(taken_at)),
        };
    }

    /// The store forgets everything.
    pub(crate) fn forget(&mut self) {
        for counter in self.counters.iter_mut().flatten().flatten() {
            counter.stored = StateSlot::default();
        }
    }

    /// Undoes a write.
    pub(crate) fn undo(&mut self, undo: Undo) {
        self.counter(undo.counter).stored = undo.stored;
    }
}

/// Whether the store admits a claim.
pub(crate) fn passes(claim: &Claim<'_>, settlement: &Settlement) -> bool {
    let mut vote = Vote::default();
    for (charge, reading) in claim.charges.iter().zip(&settlement.readings) {
        vote.count(charge.ask, charge.mode, reading.admits);
    }
    vote.passes()
}

/// Advances a state, and converts a charge to its ticks.
fn tick_charge<'a>(state: &mut CounterState, charge: &Charge<'a>, now: Timestamp) -> TickCharge<'a> {
    let now = state.advance(charge.limit, charge.limit.period().tick().at(now)).now;
    TickCharge { limit: charge.limit, now, by: ClaimId::default(), units: charge.units }
}
