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

    /// When to come back to a limiter that can't say: soon, and not at once.
    pub const TRY_AGAIN: Span = Span::from_secs(1);
}

/// Settles a claim on the states of its keys at `now`.
///
/// `slot_of` names for each charge the slot of its key; charges with the same key share one. The states need not be those of
/// the charges' algorithms: what is not counts as fresh.
pub fn settle(claim: &Claim<'_>, slots: &mut [Slot], slot_of: &[usize], now: Timestamp) -> Settlement {
    let mut settling = Settling { claim, slots, slot_of, now, readings: SmallVec::new() };
    let mut asks = Asks::default();
    for (charge, slot) in claim.charges.iter().zip(slot_of) {
        asks.note(charge.ask);
        settling.open(charge, *slot);
    }
    if asks.returns {
        settling.each(|ask| matches!(ask, Ask::Return { .. }), Settling::record);
    }
    if asks.debits {
        settling.each(|ask| ask == Ask::Regardless, Settling::record);
    }
    if asks.wants {
        settling.each(|ask| ask == Ask::Exactly, Settling::look);
    }
    if passes(claim.charges.iter().zip(&settling.readings).map(|(charge, reading)| charge.vote(reading.admits))) {
        settling.each(|ask| ask == Ask::Exactly, Settling::pay);
        if asks.leases {
            settling.each(|ask| ask == Ask::UpTo, Settling::lease);
        }
    }
    settling.each(|_| true, Settling::read);
    Settlement { readings: settling.readings, at: now, replay: Replay::First }
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

/// Which kinds of asks a claim has.
#[derive(Default)]
struct Asks {
    returns: bool,
    debits: bool,
    wants: bool,
    leases: bool,
}

impl Asks {
    fn note(&mut self, ask: Ask) {
        match ask {
            Ask::Return { .. } => self.returns = true,
            Ask::Regardless => self.debits = true,
            Ask::Exactly => self.wants = true,
            Ask::UpTo => self.leases = true,
        }
    }
}

/// A settlement under way. The readings fill up as it goes.
struct Settling<'s, 'a> {
    claim: &'s Claim<'a>,
    slots: &'s mut [Slot],
    slot_of: &'s [usize],
    now: Timestamp,
    readings: SmallVec<[Reading; 4]>,
}

impl Settling<'_, '_> {
    /// Does something for each charge whose ask is of a kind.
    fn each(&mut self, is: impl Fn(Ask) -> bool, mut act: impl FnMut(&mut Self, usize)) {
        for at in 0..self.readings.len() {
            if is(self.claim.charges[at].ask) {
                act(self, at);
            }
        }
    }

    fn open(&mut self, charge: &Charge<'_>, slot: usize) {
        let slot = &mut self.slots[slot];
        let advanced = slot.state.advance(charge.limit, tick(charge.limit).at(self.now));
        slot.changed |= advanced.moved;
        slot.now = advanced.now;
        self.readings.push(Reading {
            admits: true,
            taken: 0,
            remaining: 0,
            wait: Wait::None,
            reset_after: Span::ZERO,
            delay: Span::ZERO,
            source: Source::Store,
        });
    }

    fn asked(&self, at: usize) -> Asked<'_> {
        let charge = &self.claim.charges[at];
        let units = match charge.limit.algorithm() {
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        Asked { limit: charge.limit, now: self.slots[self.slot_of[at]].now, by: self.claim.id, units }
    }

    fn record(&mut self, at: usize) {
        let claim = self.claim;
        let limit = claim.charges[at].limit;
        let asked = Asked { limit, ..self.asked(at) };
        let slot = &mut self.slots[self.slot_of[at]];
        let taken = match claim.charges[at].ask {
            Ask::Return { taken_at } => slot.state.give_back(&asked, tick(limit).at(taken_at)),
            _ => slot.state.spend(&asked),
        };
        slot.changed |= taken > 0;
        self.readings[at].taken = taken;
    }

    /// Asks whether there is room. Charges with the same key and mode are one with the sum; those with the same key and another
    /// mode come after each other, in their order, each finding what the ones before it will pay.
    fn look(&mut self, at: usize) {
        let mut asked = self.asked(at);
        let shared = self.slots.len() < self.slot_of.len();
        if shared && asked.limit.algorithm() != Algorithm::Concurrency {
            for (other, charge) in self.claim.charges.iter().enumerate() {
                if other == at || self.slot_of[other] != self.slot_of[at] || charge.ask != Ask::Exactly {
                    continue;
                }
                let joins = charge.mode == self.claim.charges[at].mode;
                let pays_first = other < at && (self.readings[other].admits || charge.mode == Mode::Soft);
                if joins || pays_first {
                    asked.units = asked.units.saturating_add(charge.units);
                }
            }
        }
        self.readings[at].admits = self.slots[self.slot_of[at]].state.admits(&asked);
    }

    fn pay(&mut self, at: usize) {
        let claim = self.claim;
        let charge = &claim.charges[at];
        if self.readings[at].admits || charge.mode == Mode::Soft {
            let asked = Asked { limit: charge.limit, ..self.asked(at) };
            let slot = &mut self.slots[self.slot_of[at]];
            let delay = slot.state.delay(charge.limit);
            let taken = slot.state.spend(&asked);
            slot.changed |= taken > 0;
            self.readings[at].taken = taken;
            self.readings[at].delay = tick(charge.limit).span(delay);
        }
    }

    fn lease(&mut self, at: usize) {
        let claim = self.claim;
        let limit = claim.charges[at].limit;
        let asked = Asked { limit, ..self.asked(at) };
        let slot = &mut self.slots[self.slot_of[at]];
        let units = asked.units.min(slot.state.available(limit, asked.now).unwrap_or(0));
        let taken = slot.state.spend(&Asked { units, ..asked });
        slot.changed |= taken > 0;
        self.readings[at].taken = taken;
    }

    fn read(&mut self, at: usize) {
        let claim = self.claim;
        let limit = claim.charges[at].limit;
        let asked = Asked { limit, ..self.asked(at) };
        let slot = &mut self.slots[self.slot_of[at]];
        let reading = &mut self.readings[at];
        let tick = tick(limit);
        if !reading.admits {
            reading.wait = match slot.state.wait(&asked) {
                WaitUntil::Now => Wait::None,
                WaitUntil::Tick(at) => Wait::For(tick.start(at).since(self.now)),
                WaitUntil::Never => Wait::Forever,
            };
        }
        let report = slot.state.report(limit, asked.now);
        if slot.changed {
            slot.stale_at = tick.start(report.stale_at);
        }
        reading.remaining = report.available.unwrap_or(0);
        reading.reset_after = tick.start(report.reset_at).since(self.now);
    }
}

fn tick(limit: &Limit) -> Tick {
    limit.period().tick()
}
