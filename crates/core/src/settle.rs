//! How a claim is settled: the one place that decides.
//!
//! `Return` and `Regardless` record facts and always apply. Then the charges that ask for `Exactly` vote. If the claim passes,
//! all that have room pay (and the soft ones without), and leases take what is left. If it does not pass, nothing else changes.

use smallvec::SmallVec;

use crate::algorithm::{Asked, State, WaitUntil};
use crate::claim::{Ask, Charge, Claim, ClaimId, Mode, OnFailure};
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
    /// When it equals a fresh one again.
    pub stale_at: Timestamp,
    /// Whether the store must write it.
    pub changed: bool,
    /// The tick by which its limit counts.
    now: u64,
}

impl Slot {
    /// A state as a store keeps it.
    pub fn new(state: State, stale_at: Timestamp) -> Slot {
        Slot { state, stale_at, ..Slot::default() }
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

    /// What a reading is before anything was read.
    const NOTHING: Reading = Reading {
        admits: true,
        taken: 0,
        remaining: 0,
        wait: Wait::None,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    };

    /// When to come back to a limiter that can't say: soon, and not at once.
    pub const TRY_AGAIN: Span = Span::from_secs(1);
}

/// Settles a claim on the states of its keys at `now`.
///
/// `slot_of` names for each charge the slot of its key; charges with the same key share one. The states need not be those of
/// the charges' algorithms: what is not counts as fresh.
pub fn settle(claim: &Claim<'_>, slots: &mut [Slot], slot_of: &[usize], now: Timestamp) -> Settlement {
    let mut readings = SmallVec::<[Reading; 4]>::new();
    let mut asks = Asks::default();
    for (charge, slot) in claim.charges.iter().zip(slot_of) {
        asks.note(charge.ask);
        slots[*slot].open(charge.limit, now);
        readings.push(Reading::NOTHING);
    }
    let mut settling = Settling { by: claim.id, charges: &claim.charges, slots, slot_of, now, readings: &mut readings };
    if asks.returns {
        settling.give_back();
    }
    if asks.debits {
        settling.debit();
    }
    settling.look();
    if settling.passes() {
        settling.pay();
        if asks.leases {
            settling.lease();
        }
    }
    settling.read();
    Settlement { readings, at: now, replay: Replay::First }
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

impl Charge<'_> {
    /// What [`passes`] counts.
    pub fn vote(&self, admits: bool) -> (Ask, Mode, bool) {
        (self.ask, self.mode, admits)
    }
}

/// Which rare kinds of asks a claim has.
#[derive(Default)]
struct Asks {
    returns: bool,
    debits: bool,
    leases: bool,
}

impl Asks {
    fn note(&mut self, ask: Ask) {
        match ask {
            Ask::Exactly => {}
            Ask::Return { .. } => self.returns = true,
            Ask::Regardless => self.debits = true,
            Ask::UpTo => self.leases = true,
        }
    }
}

impl Slot {
    /// Brings the state up to now.
    fn open(&mut self, limit: &Limit, now: Timestamp) {
        let advanced = self.state.advance(limit, tick(limit).at(now));
        self.changed |= advanced.moved;
        self.now = advanced.now;
    }

    fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let taken = self.state.spend(asked);
        self.changed |= taken > 0;
        taken
    }
}

/// A settlement under way. The readings fill up as it goes.
struct Settling<'s, 'a> {
    by: ClaimId,
    charges: &'s [Charge<'a>],
    slots: &'s mut [Slot],
    slot_of: &'s [usize],
    now: Timestamp,
    readings: &'s mut [Reading],
}

impl<'a> Settling<'_, 'a> {
    fn asked(&self, at: usize) -> Asked<'a> {
        let charge = &self.charges[at];
        let units = match charge.limit.algorithm() {
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        Asked { limit: charge.limit, now: self.slots[self.slot_of[at]].now, by: self.by, units }
    }

    /// The first charge that is one with this one: same key, same ask, same mode.
    fn first(&self, at: usize) -> usize {
        let this = &self.charges[at];
        let same = |other: &usize| {
            let charge = &self.charges[*other];
            self.slot_of[*other] == self.slot_of[at] && charge.ask == this.ask && charge.mode == this.mode
        };
        (0..at).find(same).unwrap_or(at)
    }

    /// What is given back. Charges that are one are given back as one, and share that in their order.
    fn give_back(&mut self) {
        for at in 0..self.charges.len() {
            let Ask::Return { taken_at } = self.charges[at].ask else { continue };
            if self.first(at) != at {
                continue;
            }
            let ones: SmallVec<[usize; 4]> =
                (at..self.charges.len()).filter(|other| self.first(*other) == at).collect();
            let mut asked = self.asked(at);
            asked.units = ones.iter().fold(0, |units, one| units.saturating_add(self.asked(*one).units));
            let slot = &mut self.slots[self.slot_of[at]];
            let mut back = slot.state.give_back(&asked, tick(asked.limit).at(taken_at));
            slot.changed |= back > 0;
            for one in ones {
                self.readings[one].taken = back.min(self.asked(one).units);
                back -= self.readings[one].taken;
            }
        }
    }

    /// What was spent elsewhere.
    fn debit(&mut self) {
        for at in 0..self.charges.len() {
            if self.charges[at].ask == Ask::Regardless {
                let asked = self.asked(at);
                self.readings[at].taken = self.slots[self.slot_of[at]].spend(&asked);
            }
        }
    }

    /// Asks every counter whether it has room.
    fn look(&mut self) {
        for at in 0..self.charges.len() {
            if self.charges[at].ask == Ask::Exactly {
                let needed = self.needed(at);
                self.readings[at].admits = self.slots[self.slot_of[at]].state.admits(&needed);
            }
        }
    }

    /// What there must be room for. Charges with the same key and mode are one with the sum; those with the same key and another
    /// mode come after each other, each finding what the ones before it will pay. One claim holds one slot, however often it asks.
    fn needed(&self, at: usize) -> Asked<'a> {
        let mut asked = self.asked(at);
        if self.slots.len() == self.slot_of.len() {
            return asked;
        }
        let is_hold = asked.limit.algorithm() == Algorithm::Concurrency;
        let this = self.first(at);
        for other in 0..self.charges.len() {
            if other == at || self.slot_of[other] != self.slot_of[at] || self.charges[other].ask != Ask::Exactly {
                continue;
            }
            let first = self.first(other);
            let pays = self.readings[first].admits || self.charges[other].mode == Mode::Soft;
            if first == this || (first < this && pays && !is_hold) {
                asked.units = asked.units.saturating_add(self.asked(other).units);
            }
        }
        if is_hold {
            asked.units = asked.units.min(1);
        }
        asked
    }

    fn passes(&self) -> bool {
        passes(self.charges.iter().zip(&*self.readings).map(|(charge, reading)| charge.vote(reading.admits)))
    }

    fn pay(&mut self) {
        for at in 0..self.charges.len() {
            let charge = &self.charges[at];
            if charge.ask == Ask::Exactly && (self.readings[at].admits || charge.mode == Mode::Soft) {
                let asked = self.asked(at);
                let slot = &mut self.slots[self.slot_of[at]];
                self.readings[at].delay = tick(charge.limit).span(slot.state.delay(charge.limit, asked.now));
                self.readings[at].taken = slot.spend(&asked);
            }
        }
    }

    fn lease(&mut self) {
        for at in 0..self.charges.len() {
            if self.charges[at].ask == Ask::UpTo {
                let asked = self.asked(at);
                let slot = &mut self.slots[self.slot_of[at]];
                let units = asked.units.min(slot.state.available(asked.limit, asked.now).unwrap_or(0));
                self.readings[at].taken = slot.spend(&Asked { units, ..asked });
            }
        }
    }

    fn read(&mut self) {
        for at in 0..self.charges.len() {
            let asked = self.asked(at);
            let needed = if self.readings[at].admits { asked } else { self.needed(at) };
            let slot = &mut self.slots[self.slot_of[at]];
            let reading = &mut self.readings[at];
            let tick = tick(asked.limit);
            if !reading.admits {
                reading.wait = match slot.state.wait(&needed) {
                    WaitUntil::Now => Wait::None,
                    WaitUntil::Tick(at) => Wait::For(tick.until(self.now, at)),
                    WaitUntil::Never => Wait::Forever,
                };
            }
            let report = slot.state.report(asked.limit, asked.now);
            if slot.changed {
                slot.stale_at = tick.start(report.stale_at);
            }
            reading.remaining = report.available.unwrap_or(0);
            reading.reset_after = tick.until(self.now, report.reset_at);
        }
    }
}

fn tick(limit: &Limit) -> Tick {
    limit.period().tick()
}
