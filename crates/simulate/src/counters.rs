//! The counters of all keys: as the store has them, as requests were admitted, and as an exact fleet would have them.

use smallvec::{SmallVec, smallvec};
use tollgate_core::algorithm::TickCharge;
use tollgate_core::key::{Home, Scope};
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, CounterState, Key, Limit, Mode, OnFailure, Settlement, Shortcuts,
    StateSlot, Timestamp, Value, Vote, settle_into,
};

use crate::random::mix;
use crate::scenario::{PlannedLimit, PlannedMode};

/// A limit, and what its keys have in common.
#[derive(Debug)]
pub(crate) struct CountedLimit {
    /// As each store counts it.
    pub(crate) limit: Limit,
    /// As all regions together may admit.
    whole: Limit,
    mode: PlannedMode,
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
#[derive(Debug)]
struct Counter {
    /// The store's, by region.
    stored: SmallVec<[StateSlot; 1]>,
    /// Spends at the moment of each decision: of all regions, or of each if each has the whole limit.
    truth: SmallVec<[CounterState; 1]>,
    /// Decides all requests when they arrive, without leases. The same.
    exact: SmallVec<[CounterState; 1]>,
}

/// The counters of all limits.
#[derive(Debug)]
pub(crate) struct CounterTable {
    counters: Vec<Vec<Option<Box<Counter>>>>,
    /// The limits of all regions together, and whether each region has them for itself.
    wholes: Vec<(Limit, bool)>,
    regions: usize,
    slots: Vec<StateSlot>,
}

/// A counter before a write, for a failover.
#[derive(Debug)]
pub(crate) struct Undo {
    counter: CounterId,
    region: usize,
    stored: StateSlot,
}

/// Identifies a counter: the limit and the rank of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterId {
    pub(crate) limit: usize,
    pub(crate) key: u32,
}

impl CountedLimit {
    pub(crate) fn new(number: usize, planned: &PlannedLimit, regions: usize) -> CountedLimit {
        let PlannedLimit { limit, is_global, is_leased, ahead, mode } = planned;
        let name = format!("limit-{number}");
        let scope = Scope::new("simulated", &name, limit.algorithm(), limit.period(), Home::Own);
        let (scope, counted) = match *mode {
            PlannedMode::Global(terms) if regions > 1 => (scope.with_global(Some(terms)), limit.clone()),
            PlannedMode::Split => (scope, limit.part_of(1, regions as u16)),
            _ => (scope, limit.clone()),
        };
        CountedLimit {
            scope,
            limit: counted,
            whole: limit.clone(),
            mode: *mode,
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

impl CountedLimit {
    /// The region that has a counter, if one has.
    fn home(&self, counter: CounterId, regions: usize) -> Option<usize> {
        match self.mode {
            PlannedMode::Home(Some(region)) => Some(region),
            PlannedMode::Home(None) => Some((mix(u64::from(counter.key)) % regions as u64) as usize),
            _ => None,
        }
    }
}

/// The region whose store settles a claim of a server in `region`.
pub(crate) fn region_of(limits: &[CountedLimit], claim: &Claim<'_>, region: usize, regions: usize) -> usize {
    let home = claim.charges.first().and_then(|charge| {
        let counter = counter_of(charge);
        limits[counter.limit].home(counter, regions)
    });
    home.unwrap_or(region)
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
    pub(crate) fn new(limits: &[CountedLimit], keys: u64, regions: usize) -> CounterTable {
        let sizes = limits.iter().map(|limit| if limit.is_global { 1 } else { keys as usize });
        let counters = sizes.map(|size| (0..size).map(|_| None).collect()).collect();
        let wholes = limits.iter().map(|limit| (limit.whole.clone(), limit.mode == PlannedMode::Each)).collect();
        CounterTable { counters, wholes, regions, slots: Vec::new() }
    }

    fn counter(&mut self, id: CounterId) -> &mut Counter {
        let regions = self.regions;
        self.counters[id.limit][id.key as usize].get_or_insert_with(|| Box::new(Counter::new(regions)))
    }

    /// Settles a claim in the store of a region. What it changes is added to `undo`, if given.
    pub(crate) fn settle(
        &mut self,
        claim: &Claim<'_>,
        region: usize,
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
                    let stored = &mut self.counter(id).stored[region];
                    if let Some(undo) = &mut undo {
                        undo.push(Undo { counter: id, region, stored: stored.clone() });
                    }
                    std::mem::take(stored)
                }
            });
        }
        settle_into(claim, &mut slots, now, settlement);
        for (at, (charge, slot)) in claim.charges.iter().zip(slots.drain(..)).enumerate() {
            let id = counter_of(charge);
            if !claim.charges[..at].iter().any(|earlier| counter_of(earlier) == id) {
                self.counter(id).stored[region] = slot;
            }
        }
        self.slots = slots;
    }

    /// Decides a request exactly: in all regions together, or in this one.
    pub(crate) fn decide_exactly(&mut self, claim: &Claim<'_>, region: usize, now: Timestamp) -> bool {
        let mut has_room = true;
        for charge in &claim.charges {
            let (_, exact, limit) = self.whole(charge, region);
            let charged = tick_charge(exact, limit, charge.units, now);
            has_room &= exact.admits(&charged);
        }
        for charge in claim.charges.iter().filter(|_| has_room) {
            let (_, exact, limit) = self.whole(charge, region);
            let charged = tick_charge(exact, limit, charge.units, now);
            exact.spend(&charged);
        }
        has_room
    }

    /// Counts units that are admitted now in a region. Returns by how many units the limit is exceeded.
    pub(crate) fn spend(&mut self, charge: &Charge<'_>, region: usize, now: Timestamp) -> u64 {
        let (truth, _, limit) = self.whole(charge, region);
        let charged = tick_charge(truth, limit, charge.units, now);
        truth.spend(&charged);
        truth.used(limit, charged.now).saturating_sub(limit.quota())
    }

    /// What was admitted, what is admitted exactly, and the limit of both: of all regions together, or of this one.
    fn whole(&mut self, charge: &Charge<'_>, region: usize) -> (&mut CounterState, &mut CounterState, &Limit) {
        let (id, regions) = (counter_of(charge), self.regions);
        let (limit, is_for_each) = &self.wholes[id.limit];
        let place = if *is_for_each { region } else { 0 };
        let counter = self.counters[id.limit][id.key as usize].get_or_insert_with(|| Box::new(Counter::new(regions)));
        (&mut counter.truth[place], &mut counter.exact[place], limit)
    }

    /// How many more units are admitted than the store counts. For one region.
    pub(crate) fn uncovered(&mut self, charge: &Charge<'_>, now: Timestamp) -> u64 {
        let Counter { stored, truth, .. } = self.counter(counter_of(charge));
        let (mut stored, truth) = (stored[0].state.clone(), &mut truth[0]);
        let stored_now = tick_charge(&mut stored, charge.limit, 0, now).now;
        let truth_now = tick_charge(truth, charge.limit, 0, now).now;
        truth.used(charge.limit, truth_now).saturating_sub(stored.used(charge.limit, stored_now))
    }

    /// Takes back units that were counted as admitted, because another limit of the request refuses it.
    pub(crate) fn unspend(&mut self, charge: &Charge<'_>, region: usize, taken_at: Timestamp, now: Timestamp) {
        let (truth, _, limit) = self.whole(charge, region);
        let charged = tick_charge(truth, limit, charge.units, now);
        match limit.algorithm() {
            Algorithm::Bucket { .. } => truth.credit(&charged),
            _ => truth.give_back(&charged, limit.period().tick().at(taken_at)),
        };
    }

    /// The stores forget everything.
    pub(crate) fn forget(&mut self) {
        for counter in self.counters.iter_mut().flatten().flatten() {
            counter.stored.fill(StateSlot::default());
        }
    }

    /// Undoes a write.
    pub(crate) fn undo(&mut self, undo: Undo) {
        self.counter(undo.counter).stored[undo.region] = undo.stored;
    }
}

impl Counter {
    fn new(regions: usize) -> Counter {
        Counter {
            stored: smallvec![StateSlot::default(); regions],
            truth: smallvec![CounterState::default(); regions],
            exact: smallvec![CounterState::default(); regions],
        }
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

/// Advances a state, and returns a charge in its ticks.
fn tick_charge<'a>(state: &mut CounterState, limit: &'a Limit, units: u64, now: Timestamp) -> TickCharge<'a> {
    let now = state.advance(limit, limit.period().tick().at(now)).now;
    TickCharge { limit, now, by: ClaimId::default(), units }
}
