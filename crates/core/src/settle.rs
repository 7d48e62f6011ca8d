//! How a claim is settled: the one place that decides.
//!
//! `Reset`, `Return`, `Credit` and `Regardless`, in this order, always apply. Then the charges that ask for `Exactly` vote. If the claim
//! passes, all that have room pay (and the soft ones without), and leases take what is left. If it does not pass, nothing else
//! changes.

mod tangled;

use smallvec::SmallVec;

use crate::algorithm::{Asked, State, WaitUntil};
use crate::claim::{Ask, Charge, Claim, ClaimId, Mode, OnFailure};
use crate::limit::{Algorithm, Limit};
use crate::time::{Span, Timestamp, Wait};

/// What one counter says to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it has room for the charge. True for what does not ask for room, but for an order that was not done.
    pub admits: bool,
    /// Units that moved: taken, or, for a `Return` or a `Credit`, given back, or, for a `Reset`, forgotten: what counted against the
    /// limit, past it too.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The store of record.
    #[default]
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

impl Source {
    /// In one word, for answers, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Cache => "cache",
            Source::Local => "local",
            Source::Assumed => "assumed",
            Source::Shed => "shed",
        }
    }
}

/// A store's answer: a reading for each charge, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// One for each charge. Of a claim that was settled before: one for each that it had then.
    pub readings: SmallVec<[Reading; 4]>,
    /// When it was settled, by the store's clock.
    pub at: Timestamp,
    /// Whether it was settled now.
    pub replay: Replay,
}

/// What became of a claim that is to be settled once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Settled now.
    #[default]
    First,
    /// Settled before: these are the readings of that time, as many as there were charges then, and nothing changed.
    Again {
        /// The terms of that time.
        terms: u64,
        /// Whether the claim passed.
        passed: bool,
    },
    /// Another claim has this name: nothing changed, and every reading is a refusal.
    Conflict,
}

/// A state on loan from a store: one for each charge, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What the store had.
    pub state: State,
    /// When it equals a fresh one again.
    pub stale_at: Timestamp,
    /// Whether the store must write it. One that changed and is [fresh](State::Fresh) is to be removed.
    pub changed: bool,
    /// Where the store had it, if it did: for the store's own use.
    pub place: Option<u32>,
    /// The earlier charge with the same key, whose slot counts for this one too.
    same_as: Option<u16>,
    /// The tick by which its limit counts.
    now: u64,
}

impl Slot {
    /// A state as a store keeps it.
    pub fn new(state: State, stale_at: Timestamp) -> Slot {
        Slot { state, stale_at, ..Slot::default() }
    }

    /// The slot of a charge whose key an earlier charge has too. A claim has at most [`Claim::MOST_CHARGES`].
    pub fn same_as(charge: usize) -> Slot {
        Slot { same_as: u16::try_from(charge).ok(), ..Slot::default() }
    }

    /// Brings the state up to now.
    fn open(&mut self, limit: &Limit, now: Timestamp) {
        let advanced = self.state.advance(limit, limit.period().tick().at(now));
        self.changed |= advanced.moved;
        self.now = advanced.now;
    }

    fn asked<'a>(&self, charge: &Charge<'a>, by: ClaimId) -> Asked<'a> {
        let units = match charge.limit.algorithm() {
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        Asked { limit: charge.limit, now: self.now, by, units }
    }

    /// Makes the counter one that nobody ever used, and says how many units counted.
    fn reset(&mut self, limit: &Limit, now: Timestamp) -> u64 {
        let forgotten = self.state.used(limit, self.now);
        self.state = State::Fresh;
        self.open(limit, now);
        self.changed = true;
        forgotten
    }

    /// After a reset and all that came with it: if nothing was counted, there is nothing to keep.
    fn let_go(&mut self, limit: &Limit) {
        if self.state.used(limit, self.now) == 0 {
            (self.state, self.stale_at) = (State::Fresh, Timestamp::default());
        }
    }

    fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let taken = self.state.spend(asked);
        self.changed |= taken > 0;
        taken
    }

    /// Takes what is asked, if the charge has room or is soft.
    fn pay(&mut self, asked: &Asked<'_>, mode: Mode, reading: &mut Reading) {
        if reading.admits || mode == Mode::Soft {
            reading.delay = asked.limit.period().tick().span(self.state.delay(asked.limit, asked.now));
            reading.taken = self.spend(asked);
        }
    }

    /// Reads the state as the claim leaves it. `needed` is what there was no room for, if there was none.
    fn read(&mut self, needed: &Asked<'_>, now: Timestamp, reading: &mut Reading) {
        let tick = needed.limit.period().tick();
        if !reading.admits {
            reading.wait = match self.state.wait(needed) {
                WaitUntil::Now => Wait::None,
                WaitUntil::Tick(at) => Wait::For(tick.until(now, at)),
                WaitUntil::Never => Wait::Forever,
            };
        }
        let report = self.state.report(needed.limit, needed.now);
        if self.changed {
            self.stale_at = tick.start(report.stale_at);
        }
        reading.remaining = report.available.unwrap_or(0);
        reading.reset_after = tick.until(now, report.reset_at);
    }
}

impl Reading {
    /// What a charge reads when nobody can say: its policy, marked as such. Of an order, which nobody does later, that it was not done.
    pub fn assumed(charge: &Charge<'_>, source: Source) -> Reading {
        let admits = charge.on_failure != OnFailure::Deny && !charge.ask.is_order();
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

/// The vote on a claim.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vote {
    refused: bool,
    any_of: Option<bool>,
}

impl Vote {
    /// Counts what a charge says: only those that ask for their units or nothing have a vote.
    pub fn count(&mut self, ask: Ask, mode: Mode, admits: bool) {
        match (ask, mode) {
            (Ask::Exactly, Mode::Enforce) => self.refused |= !admits,
            (Ask::Exactly, Mode::AnyOf) => self.any_of = Some(admits || self.any_of == Some(true)),
            _ => {}
        }
    }

    /// Whether the claim passes: every enforced charge has room and, where there are some of mode `AnyOf`, one of those has.
    pub fn passes(self) -> bool {
        !self.refused && self.any_of != Some(false)
    }
}

/// Settles a claim on the states of its keys at `now`.
///
/// There is a slot for each charge. The states need not be those of the charges' algorithms: what is not counts as fresh.
pub fn settle(claim: &Claim<'_>, slots: &mut [Slot], now: Timestamp) -> Settlement {
    let mut settlement = Settlement::default();
    settle_into(claim, slots, now, &mut settlement);
    settlement
}

/// The same, written where it will be read: a settlement is large to move, and this is the path of every request.
pub fn settle_into(claim: &Claim<'_>, slots: &mut [Slot], now: Timestamp, settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.at = now;
    settlement.replay = Replay::First;
    let is_plain = |(charge, slot): (&Charge<'_>, &Slot)| charge.ask == Ask::Exactly && slot.same_as.is_none();
    if claim.charges.iter().zip(&*slots).all(is_plain) {
        plain(claim.id, &claim.charges, slots, settlement);
    } else {
        tangled::settle(claim.id, &claim.charges, slots, settlement);
    }
}

/// Most claims only ask, each charge of a counter of its own: then no counter has to do with another but for the vote.
fn plain(by: ClaimId, charges: &[Charge<'_>], slots: &mut [Slot], settlement: &mut Settlement) {
    let Settlement { readings, at: now, .. } = settlement;
    let mut vote = Vote::default();
    for (charge, slot) in charges.iter().zip(&mut *slots) {
        slot.open(charge.limit, *now);
        let admits = slot.state.admits(&slot.asked(charge, by));
        vote.count(Ask::Exactly, charge.mode, admits);
        readings.push(Reading { admits, ..Reading::NOTHING });
    }
    let passes = vote.passes();
    for ((charge, slot), reading) in charges.iter().zip(slots).zip(readings) {
        let asked = slot.asked(charge, by);
        if passes {
            slot.pay(&asked, charge.mode, reading);
        }
        slot.read(&asked, *now, reading);
    }
}
