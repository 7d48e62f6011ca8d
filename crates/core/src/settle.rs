//! Settles claims. This is the only code that decides.
//!
//! `Reset`, `Return`, `Credit` and `Regardless` are always applied, in this order. Then the `Exactly` charges vote.
//! If the claim passes, every charge with room pays, soft charges pay even without room, and leases take what is
//! left. If the claim does not pass, nothing else changes.

mod interacting;

use smallvec::SmallVec;

use crate::algorithm::{AlgorithmState, ChargeResult, CounterState, StateReport, TickCharge, WaitUntil};
use crate::claim::{Ask, Charge, Claim, ClaimId, Mode, OnFailure};
use crate::limit::{Algorithm, Limit};
use crate::region::{GlobalTerms, RegionLink, RegionShare};
use crate::time::{Span, Timestamp, Wait};

/// The answer of one counter to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether the counter has room for the charge. Always true for charges that need no room, except for an order
    /// that was not carried out.
    pub admits: bool,
    /// The units that moved: taken by a charge, given back by a `Return` or `Credit`, or cleared by a `Reset`
    /// (including units past the limit).
    pub taken: u64,
    /// Units left after the claim. Exact, also after a refusal.
    pub remaining: u64,
    /// The time until the counter has room.
    pub wait: Wait,
    /// The time until the quota is full again (bucket, log, holds) or until the period ends (windows).
    pub reset_after: Span,
    /// How long to delay the request so that requests leave evenly spaced (leaky bucket).
    pub delay: Span,
    /// Where the answer comes from.
    pub source: Source,
}

/// The origin of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The store of record.
    #[default]
    Store,
    /// Units that this server took from the store ahead of requests, or a refusal because it has none.
    Lease,
    /// A refusal from the deny cache.
    Cache,
    /// This server's own count, and what the other servers published of theirs a moment ago.
    Summed,
    /// This server's own memory, while the store is unavailable; or a counter that keys of a rule share, because the store
    /// is full.
    Local,
    /// The rule's policy, because the store was unavailable.
    Assumed,
    /// The rule's policy, because the server was overloaded.
    Shed,
}

impl Source {
    /// The name in responses, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Lease => "lease",
            Source::Cache => "cache",
            Source::Summed => "summed",
            Source::Local => "local",
            Source::Assumed => "assumed",
            Source::Shed => "shed",
        }
    }

    /// Whether a change with this source is recorded for all servers. Otherwise the store is unavailable, and some of it is
    /// sent later.
    pub fn is_recorded(self) -> bool {
        matches!(self, Source::Store | Source::Summed)
    }
}

/// A store's answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// One reading for each charge, in order. For a replay: one for each charge that the first claim had.
    pub readings: SmallVec<[Reading; 4]>,
    /// The time of the settlement, by the store's clock.
    pub at: Timestamp,
    /// Whether the claim was settled now or before.
    pub replay: Replay,
    /// How other regions were doing, if the claim has charges whose units are debited there.
    pub link: RegionLink,
    /// The part of such limits that was counted, if they were lowered for that reason.
    pub lowered_to: RegionShare,
}

impl Settlement {
    /// The answer to a claim whose idempotency key belongs to a different claim: every charge is refused for good.
    pub fn conflict(claim: &Claim<'_>, now: Timestamp) -> Settlement {
        let readings = claim.charges.iter().map(|_| Reading::refusal(Wait::Forever)).collect();
        Settlement { readings, at: now, replay: Replay::Conflict, ..Settlement::default() }
    }

    /// The quota of which the reading of a charge says what remains: that of its limit, unless it was lowered.
    #[inline]
    pub fn counted_quota(&self, charge: &Charge<'_>) -> u64 {
        match self.link {
            RegionLink::Together => charge.limit.quota(),
            _ if charge.is_global() && charge.ask.is_request() => {
                self.lowered_quota(charge.limit, charge.key.scope().global())
            }
            _ => charge.limit.quota(),
        }
    }

    /// How many units of the limit of a charge are used.
    #[inline]
    pub fn used(&self, charge: &Charge<'_>, reading: &Reading) -> u64 {
        self.counted_quota(charge).saturating_sub(reading.remaining)
    }

    /// The counted quota of a request under a limit whose units are debited in other regions on these terms, if they are.
    #[inline]
    pub fn lowered_quota(&self, limit: &Limit, terms: Option<GlobalTerms>) -> u64 {
        match terms {
            Some(terms) if self.link.lowers(terms) => self.lowered_to.of(limit).quota(),
            _ => limit.quota(),
        }
    }
}

impl Settlement {
    /// Discards everything of an earlier claim.
    #[inline]
    pub fn begin(&mut self, now: Timestamp) {
        self.readings.clear();
        self.at = now;
        self.replay = Replay::First;
        (self.link, self.lowered_to) = (RegionLink::Together, RegionShare::WHOLE);
    }

    /// Whether the answer to an idempotent claim must be stored for its repetitions: if it took or changed something. A
    /// claim that was refused, or that only looked, is decided anew each time; storing that would cost memory for which
    /// no limit accounts. A claim without charges only records its key.
    pub fn needs_record(&self, claim: &Claim<'_>) -> bool {
        let mut settled = claim.charges.iter().zip(&self.readings);
        claim.charges.is_empty() || settled.any(|(charge, reading)| reading.taken > 0 || !charge.ask.is_request())
    }
}

/// The outcome of idempotency for a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// The claim was settled now.
    #[default]
    First,
    /// The claim was settled before. The readings are those of that time and nothing changed now.
    Again {
        /// The digest of the terms at that time.
        terms: u64,
        /// Whether the claim passed.
        passed: bool,
    },
    /// The key belongs to a different claim. Nothing changed, and every reading is a refusal.
    Conflict,
}

/// A state that a store lends to [`settle()`]: one slot for each charge, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSlot {
    /// The stored state.
    pub state: CounterState,
    /// The time from which the state equals a fresh one.
    pub stale_at: Timestamp,
    /// Whether the store must write the state. A changed state that is [fresh](CounterState::Fresh) must be removed.
    pub changed: bool,
    /// The state's position in the store, for the store's own use.
    pub index: Option<u32>,
    /// The index of an earlier charge with the same key, whose slot this charge shares.
    same_as: Option<u16>,
    /// The current tick of the limit.
    now: u64,
    /// Whether there is room for the charge.
    admits: bool,
}

impl StateSlot {
    /// A slot with a stored state.
    pub fn new(state: CounterState, stale_at: Timestamp) -> StateSlot {
        StateSlot { state, stale_at, ..StateSlot::default() }
    }

    /// A slot for a charge that has the same key as an earlier charge. The index fits because of
    /// [`Claim::MAX_CHARGES`].
    pub fn same_as(charge: usize) -> StateSlot {
        StateSlot { same_as: u16::try_from(charge).ok(), ..StateSlot::default() }
    }

    /// Advances the state to `now`.
    fn open(&mut self, limit: &Limit, now: Timestamp) {
        let advanced = self.state.advance(limit, limit.period().tick().at(now));
        self.changed |= advanced.moved;
        self.now = advanced.now;
    }

    fn tick_charge<'a>(&self, charge: &Charge<'a>, by: ClaimId) -> TickCharge<'a> {
        let units = match charge.limit.algorithm() {
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        TickCharge { limit: charge.limit, now: self.now, by, units }
    }

    /// Clears the counter and returns how many units it counted.
    fn reset(&mut self, limit: &Limit, now: Timestamp) -> u64 {
        let cleared = self.state.used(limit, self.now);
        self.state = CounterState::Fresh;
        self.open(limit, now);
        self.changed = true;
        cleared
    }

    /// Runs at the end of a claim with a reset: a counter without units needs no stored state.
    fn drop_if_unused(&mut self, limit: &Limit) {
        if self.state.used(limit, self.now) == 0 {
            (self.state, self.stale_at) = (CounterState::Fresh, Timestamp::default());
        }
    }

    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        let taken = self.state.spend(charge);
        self.changed |= taken > 0;
        taken
    }

    /// Takes the units if the charge has room or is soft.
    fn pay(&mut self, charge: &TickCharge<'_>, mode: Mode, reading: &mut Reading) {
        if reading.admits || mode == Mode::Soft {
            reading.delay = charge.limit.period().tick().span(self.state.delay(charge.limit, charge.now));
            reading.taken = self.spend(charge);
        }
    }

    /// Reads the state after the claim. `needed` is the charge that room was required for.
    fn read(&mut self, needed: &TickCharge<'_>, now: Timestamp, reading: &mut Reading) {
        if !reading.admits {
            reading.wait = self.wait(needed, now);
        }
        let report = self.state.report(needed.limit, needed.now);
        self.apply(&report, needed.limit, now, reading);
    }

    /// Pays, if the claim passes, and reads the state: the last step for a counter that only one charge uses.
    fn conclude(&mut self, charge: &TickCharge<'_>, mode: Mode, passes: bool, now: Timestamp) -> Reading {
        let result = self.state.conclude(charge, passes && (self.admits || mode == Mode::Soft));
        self.changed |= result.taken > 0;
        if self.changed {
            self.stale_at = charge.limit.period().tick().start(result.report.stale_at);
        }
        let wait = if self.admits { Wait::None } else { self.wait(charge, now) };
        Reading::after(self.admits, wait, &result, charge.limit, now)
    }

    fn wait(&self, needed: &TickCharge<'_>, now: Timestamp) -> Wait {
        from_now(self.state.wait(needed), needed.limit, now)
    }

    #[inline]
    fn apply(&mut self, report: &StateReport, limit: &Limit, now: Timestamp, reading: &mut Reading) {
        let tick = limit.period().tick();
        if self.changed {
            self.stale_at = tick.start(report.stale_at);
        }
        reading.remaining = report.available.unwrap_or(0);
        reading.reset_after = tick.until(now, report.reset_at);
    }
}

impl Reading {
    /// The reading when no store can answer: the charge's policy, marked with its source. An order reads as not
    /// carried out, because nothing carries it out later.
    pub fn assumed(charge: &Charge<'_>, source: Source) -> Reading {
        let admits = charge.on_failure != OnFailure::Deny && !charge.ask.is_order();
        Reading {
            admits,
            taken: 0,
            remaining: if admits { charge.limit.amount() } else { 0 },
            wait: if admits { Wait::None } else { Wait::For(Self::RETRY_AFTER) },
            reset_after: Span::ZERO,
            delay: Span::ZERO,
            source,
        }
    }

    /// The reading of a charge whose counter was not read, because another charge of the claim is refused.
    pub fn unread(charge: &Charge<'_>, source: Source) -> Reading {
        Reading { remaining: charge.limit.quota(), source, ..Self::INITIAL }
    }

    /// The reading of a counter after a charge.
    #[inline]
    fn after(admits: bool, wait: Wait, result: &ChargeResult, limit: &Limit, now: Timestamp) -> Reading {
        let tick = limit.period().tick();
        Reading {
            admits,
            taken: result.taken,
            remaining: result.report.available.unwrap_or(0),
            wait,
            reset_after: tick.until(now, result.report.reset_at),
            delay: tick.span(result.delay),
            source: Source::Store,
        }
    }

    /// A refusal that says nothing about the counter except when to retry.
    pub const fn refusal(wait: Wait) -> Reading {
        Reading { admits: false, wait, ..Self::INITIAL }
    }

    /// The reading before a state was read.
    const INITIAL: Reading = Reading {
        admits: true,
        taken: 0,
        remaining: 0,
        wait: Wait::None,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    };

    /// The wait of a refusal without a store: soon, but not immediately.
    pub const RETRY_AFTER: Span = Span::from_secs(1);
}

/// How long it is from `now` until a limit has room.
fn from_now(until: WaitUntil, limit: &Limit, now: Timestamp) -> Wait {
    match until {
        WaitUntil::Now => Wait::None,
        WaitUntil::Tick(at) => Wait::For(limit.period().tick().until(now, at)),
        WaitUntil::Never => Wait::Forever,
    }
}

/// The votes of a claim's charges.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vote {
    refused: bool,
    any_of: Option<bool>,
}

impl Vote {
    /// Counts the vote of a charge. Only `Exactly` charges vote.
    #[inline]
    pub fn count(&mut self, ask: Ask, mode: Mode, admits: bool) {
        match (ask, mode) {
            (Ask::Exactly, Mode::Enforce) => self.refused |= !admits,
            (Ask::Exactly, Mode::AnyOf) => self.any_of = Some(admits || self.any_of == Some(true)),
            _ => {}
        }
    }

    /// Whether the claim passes: every enforced charge has room and, if there are charges of mode `AnyOf`, at least
    /// one of them has room.
    #[inline]
    pub fn passes(self) -> bool {
        !self.refused && self.any_of != Some(false)
    }
}

/// Settles a claim on the states of its keys at `now`.
///
/// There must be one slot for each charge. A state that does not match its charge's algorithm counts as fresh.
pub fn settle(claim: &Claim<'_>, slots: &mut [StateSlot], now: Timestamp) -> Settlement {
    let mut settlement = Settlement::default();
    settle_into(claim, slots, now, &mut settlement);
    settlement
}

/// Like [`settle()`], but writes into an existing settlement. A settlement is large to move, and every request takes
/// this path.
pub fn settle_into(claim: &Claim<'_>, slots: &mut [StateSlot], now: Timestamp, settlement: &mut Settlement) {
    settlement.begin(now);
    let is_independent =
        |(charge, slot): (&Charge<'_>, &StateSlot)| charge.ask == Ask::Exactly && slot.same_as.is_none();
    if claim.charges.iter().zip(&*slots).all(is_independent) {
        independent(claim.id, &claim.charges, slots, settlement);
    } else {
        interacting::settle(claim.id, &claim.charges, slots, settlement);
    }
}

/// Like [`settle_into`] for a claim of one charge, as many claims are.
#[inline]
pub fn settle_charge(
    by: ClaimId,
    charge: &Charge<'_>,
    slot: &mut StateSlot,
    now: Timestamp,
    settlement: &mut Settlement,
) {
    settlement.begin(now);
    if charge.ask != Ask::Exactly {
        return interacting::settle(by, std::slice::from_ref(charge), std::slice::from_mut(slot), settlement);
    }
    slot.open(charge.limit, now);
    let charged = slot.tick_charge(charge, by);
    slot.admits = slot.state.admits(&charged);
    // Without room only a soft charge pays: a shadow charge lets the claim pass, but takes nothing.
    settlement.readings.push(slot.conclude(&charged, charge.mode, true, now));
}

/// What became of a state that a charge was settled on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledState {
    /// The answer to the charge.
    pub reading: Reading,
    /// Whether the store must write the state.
    pub changed: bool,
    /// The time from which the changed state equals a fresh one.
    pub stale_at: Timestamp,
}

/// Like [`settle_charge`] for an `Exactly` charge without holds, on a state that is known to be of the limit's algorithm: a
/// store with a table for each algorithm settles it in its place.
#[inline]
pub fn settle_state<S: AlgorithmState>(
    by: ClaimId,
    charge: &Charge<'_>,
    state: &mut S,
    now: Timestamp,
) -> SettledState {
    let limit = charge.limit;
    let tick = limit.period().tick();
    let advanced = state.advance(limit, tick.at(now));
    let charged = TickCharge { limit, now: advanced.now, by, units: charge.units };
    let admits = state.has_room(&charged);
    let result = state.conclude(&charged, admits || charge.mode == Mode::Soft);
    let wait = if admits { Wait::None } else { from_now(state.earliest(&charged), limit, now) };
    SettledState {
        reading: Reading::after(admits, wait, &result, limit, now),
        changed: advanced.moved || result.taken > 0,
        stale_at: tick.start(result.report.stale_at),
    }
}

/// Settles a claim of `Exactly` charges with distinct keys, as most claims are. The charges are independent except
/// for the vote.
fn independent(by: ClaimId, charges: &[Charge<'_>], slots: &mut [StateSlot], settlement: &mut Settlement) {
    let Settlement { readings, at: now, .. } = settlement;
    let mut vote = Vote::default();
    for (charge, slot) in charges.iter().zip(&mut *slots) {
        slot.open(charge.limit, *now);
        slot.admits = slot.state.admits(&slot.tick_charge(charge, by));
        vote.count(Ask::Exactly, charge.mode, slot.admits);
    }
    let passes = vote.passes();
    for (charge, slot) in charges.iter().zip(slots) {
        let charged = slot.tick_charge(charge, by);
        readings.push(slot.conclude(&charged, charge.mode, passes, *now));
    }
}
