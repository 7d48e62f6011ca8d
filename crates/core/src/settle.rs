//! How a claim is settled: the one place that decides.
//!
//! `Return` and `Regardless` record facts and always apply. Then the charges that ask for `Exactly` vote. If the claim passes,
//! all that have room pay (and the soft ones without), and leases take what is left. If it does not pass, nothing else changes.

use smallvec::SmallVec;

use crate::algorithm::{Asked, State, WaitUntil};
use crate::claim::{Ask, Charge, Claim, Mode, OnFailure};
use crate::limit::{Algorithm, Limit};
use crate::time::{Span, Tick, Timestamp, Wait};

/// What one counter says to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it has room for the charge. True for what does not ask for room.
    pub admits: bool,
    /// Units that moved: taken, or, for a `Return`, given back.
    pub taken: u64,
    /// Units left after the claim; the true number, also on refusal.
    pub remaining: u64,
    /// How long until it has room.
    pub wait: Wait,
    /// How long until its quota is whole again (bucket, log, holds) or its period ends (windows).
    pub reset_after: Span,
    /// How long the request should be held back so that it leaves evenly spaced (leaky bucket).
    pub delay: Span,
    /// Who says so.
    pub source: Source,
}

/// Where a reading comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The store of record.
    Store,
    /// A refusal remembered for the length of its wait.
    Cache,
    /// This server's own memory, while the store is away.
    Local,
    /// Nobody: the rule's policy for a store that can't answer.
    Assumed,
    /// Nobody: the rule's policy for a server that is overloaded.
    Shed,
}

/// A store's answer: a reading for each charge, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// One for each charge.
    pub readings: SmallVec<[Reading; 4]>,
    /// When it was settled, by the store's clock.
    pub at: Timestamp,
    /// Whether it was settled now.
    pub replay: Replay,
}

/// What became of a claim that is to be settled once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Settled now.
    First,
    /// Settled before: these are the readings of that time, and nothing changed.
    Again,
    /// Another claim has this name: nothing changed, and the readings are those of a look that found no room.
    Conflict,
}

/// A state on loan from a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What the store had.
    pub state: State,
    /// When it equals a fresh one again. Set when it has changed.
    pub stale_at: Timestamp,
    /// Whether the store must write it.
    pub changed: bool,
}

impl Slot {
    /// A state as a store keeps it.
    pub fn new(state: State) -> Slot {
        Slot { state, stale_at: Timestamp::default(), changed: false }
    }
}

impl Reading {
    /// What a charge reads when nobody can say: its policy, marked as such.
    pub fn assumed(charge: &Charge<'_>, source: Source) -> Reading {
        let admits = charge.on_failure != OnFailure::Deny;
        Reading {
            admits,
            taken: 0,
            remaining: if admits { charge.limit.amount() } else { 0 },
            wait: if admits { Wait::None } else { Wait::For(Self::TRY_AGAIN) },
            reset_after: Span::ZERO,
            delay: Span::ZERO,
            source,
        }
    }

    /// When to come back to a limiter that can't say: soon, and not at once.
    pub const TRY_AGAIN: Span = Span::from_secs(1);
}

/// Settles a claim on the states of its keys at `now`.
///
/// `slot_of` names for each charge the slot of its key; charges with the same key share one. The states need not be those of
/// the charges' algorithms: what is not counts as fresh.
pub fn settle(claim: &Claim<'_>, slots: &mut [Slot], slot_of: &[usize], now: Timestamp) -> Settlement {
    let mut counters: SmallVec<[Counter<'_>; 4]> = claim
        .charges
        .iter()
        .zip(slot_of)
        .map(|(charge, &slot)| Counter::open(claim, charge, &mut slots[slot], slot, now))
        .collect();
    give_back(&mut counters, slots);
    for counter in &mut counters {
        if counter.ask == Ask::Regardless {
            counter.spend(&mut slots[counter.slot], counter.asked.units);
        }
    }
    look_for_room(&mut counters, slots);
    if passes(counters.iter().map(|counter| (counter.ask, counter.mode, counter.admits))) {
        for counter in &mut counters {
            counter.pay(&mut slots[counter.slot]);
        }
        for counter in &mut counters {
            counter.lease(&mut slots[counter.slot]);
        }
    }
    Settlement {
        readings: counters.iter().map(|counter| counter.read(&mut slots[counter.slot], now)).collect(),
        at: now,
        replay: Replay::First,
    }
}

/// The vote: whether a claim passes, given what each charge asks, its mode, and whether it has room.
pub fn passes(charges: impl Iterator<Item = (Ask, Mode, bool)>) -> bool {
    let mut any_of = None;
    for (ask, mode, admits) in charges {
        match (ask, mode) {
            (Ask::Exactly, Mode::Enforce) if !admits => return false,
            (Ask::Exactly, Mode::AnyOf) => any_of = Some(any_of.unwrap_or(false) || admits),
            _ => {}
        }
    }
    any_of.unwrap_or(true)
}

/// One charge on its way through a settlement.
struct Counter<'a> {
    ask: Ask,
    mode: Mode,
    asked: Asked<'a>,
    slot: usize,
    /// The units for which there must be room: its own, those of the charges that are one with it, those that come first.
    needs: u64,
    admits: bool,
    taken: u64,
    delay: u64,
}

impl<'a> Counter<'a> {
    fn open(claim: &Claim<'_>, charge: &Charge<'a>, slot: &mut Slot, index: usize, now: Timestamp) -> Counter<'a> {
        let limit = charge.limit;
        let advanced = slot.state.advance(limit, tick(limit).at(now));
        slot.changed |= advanced.moved;
        let units = match limit.algorithm() {
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        let asked = Asked { limit, now: advanced.now, by: claim.id, units };
        Counter {
            ask: charge.ask,
            mode: charge.mode,
            asked,
            slot: index,
            needs: units,
            admits: true,
            taken: 0,
            delay: 0,
        }
    }

    /// Whether the two are one charge with the sum.
    fn is_one_with(&self, other: &Counter<'_>) -> bool {
        self.slot == other.slot && self.ask == other.ask && self.mode == other.mode
    }

    fn spend(&mut self, slot: &mut Slot, units: u64) {
        self.taken = slot.state.spend(&Asked { units, ..self.asked });
        slot.changed |= self.taken > 0;
    }

    fn pay(&mut self, slot: &mut Slot) {
        if self.ask == Ask::Exactly && (self.admits || self.mode == Mode::Soft) {
            self.delay = slot.state.delay(self.asked.limit, self.asked.now);
            self.spend(slot, self.asked.units);
        }
    }

    fn lease(&mut self, slot: &mut Slot) {
        if self.ask == Ask::UpTo {
            let available = slot.state.available(self.asked.limit, self.asked.now).unwrap_or(0);
            self.spend(slot, self.asked.units.min(available));
        }
    }

    fn read(&self, slot: &mut Slot, now: Timestamp) -> Reading {
        let Asked { limit, now: tick_now, .. } = self.asked;
        let tick = tick(limit);
        let wait = match self.admits {
            true => Wait::None,
            false => match slot.state.wait(&Asked { units: self.needs, ..self.asked }) {
                WaitUntil::Now => Wait::None,
                WaitUntil::Tick(at) => Wait::For(tick.until(now, at)),
                WaitUntil::Never => Wait::Forever,
            },
        };
        if slot.changed {
            slot.stale_at = tick.start(slot.state.stale_at(limit));
        }
        Reading {
            admits: self.admits,
            taken: self.taken,
            remaining: slot.state.available(limit, tick_now).unwrap_or(0),
            wait,
            reset_after: tick.until(now, slot.state.reset_at(limit, tick_now)),
            delay: tick.span(self.delay),
            source: Source::Store,
        }
    }
}

/// Applies the returns. Those with the same key and moment are one with the sum, shared out in their order.
fn give_back(counters: &mut [Counter<'_>], slots: &mut [Slot]) {
    for at in 0..counters.len() {
        let Ask::Return { taken_at } = counters[at].ask else {
            continue;
        };
        if counters[..at].iter().any(|earlier| earlier.is_one_with(&counters[at])) {
            continue;
        }
        let mut asked = counters[at].asked;
        for later in &counters[at + 1..] {
            if later.is_one_with(&counters[at]) {
                asked.units = asked.units.saturating_add(later.asked.units);
            }
        }
        let slot = &mut slots[counters[at].slot];
        let mut back = slot.state.give_back(&asked, tick(asked.limit).at(taken_at));
        slot.changed |= back > 0;
        for later in at..counters.len() {
            if counters[later].is_one_with(&counters[at]) {
                counters[later].taken = back.min(counters[later].asked.units);
                back -= counters[later].taken;
            }
        }
    }
}

/// Asks every counter whether it has room. Charges with the same key and mode are one with the sum; those with the same key
/// and another mode come after each other, in their order, each finding what the ones before it will pay.
fn look_for_room(counters: &mut [Counter<'_>], slots: &[Slot]) {
    for at in 0..counters.len() {
        let this = &counters[at];
        if this.ask != Ask::Exactly {
            continue;
        }
        if let Some(first) = counters[..at].iter().find(|first| first.is_one_with(this)) {
            (counters[at].needs, counters[at].admits) = (first.needs, first.admits);
            continue;
        }
        // One claim holds one slot, however often it asks.
        let is_hold = this.asked.limit.algorithm() == Algorithm::Concurrency;
        let mut needs = this.asked.units;
        for (index, other) in counters.iter().enumerate() {
            if index == at || other.slot != this.slot || other.ask != Ask::Exactly {
                continue;
            }
            let first = counters.iter().position(|first| first.is_one_with(other)).unwrap_or(index);
            let pays = counters[first].admits || other.mode == Mode::Soft;
            if first == at || (first < at && pays && !is_hold) {
                needs = needs.saturating_add(other.asked.units);
            }
        }
        if is_hold {
            needs = needs.min(1);
        }
        let admits = slots[this.slot].state.admits(&Asked { units: needs, ..this.asked });
        (counters[at].needs, counters[at].admits) = (needs, admits);
    }
}

fn tick(limit: &Limit) -> Tick {
    limit.period().tick()
}
