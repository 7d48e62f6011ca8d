//! Claims whose keys live in several locations: settled in parts, concurrently, all or nothing.
//!
//! Each part takes the units that it has room for. If the claim as a whole does not pass, these units are given back:
//! for a moment less is admitted than could be, never more. Returns that cannot be sent in time go to the outbox,
//! also if the caller goes away meanwhile. A return of unknown outcome is not repeated, except that of a hold.
//!
//! Other callers may meet that moment; `order` avoids it where it would matter.

mod order;

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Ask, Claim, Key, Mode, Once, Reading, Replay, Settlement, Span, Timestamp, Verdict, Wait};

use super::Guarded;
use super::deferred::{DeferredClaim, DeferredVerdict};
use super::local::Recorded;
use super::policy::{self, Charges, UnansweredCharges, Unavailable};
use super::status::UnavailableReason;
use crate::clock::Clock;
use crate::join::join_all;
use crate::sharded::{Failure, Location, OnceRecord, Sharded};

/// The locations of a claim's keys.
pub(super) enum ClaimLocations {
    None,
    One(Location),
    /// The location of the record comes first, if the claim is idempotent.
    Several(SmallVec<[(Location, Charges); 2]>),
}

/// The part of a claim that belongs to one location.
struct ClaimPart<'a> {
    location: Location,
    /// The indices of the claim's charges that live there.
    charges: Charges,
    claim: Claim<'a>,
    settlement: Settlement,
    outcome: PartOutcome,
    /// Its units were set to 0, because the claim is refused.
    is_peek: bool,
}

#[derive(PartialEq, Eq)]
enum PartOutcome {
    /// Not sent, or not answered yet.
    Unknown,
    /// Its shard is unavailable, so it is not sent.
    Unavailable,
    Settled,
    Failed(Failure),
}

/// The units that a part took and that are being returned.
struct PartReturn<'p, 'a> {
    part: &'p ClaimPart<'a>,
    /// The indices of the claim's charges that took units.
    took: Charges,
    claim: Claim<'a>,
    settlement: Settlement,
}

/// A claim that is being settled in parts.
struct Split<'g, 'a, S: Sharded, C: Clock> {
    guard: &'g Guarded<S, C>,
    claim: &'g Claim<'a>,
    parts: SmallVec<[ClaimPart<'a>; 2]>,
    unanswered: UnansweredCharges,
    readings: SmallVec<[Reading; 4]>,
    /// What must be given back when this is dropped.
    owed: OwedReturns,
}

/// What the parts of a claim have taken and must give back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwedReturns {
    Nothing,
    /// Only holds: all units are being given back, with an outcome that is not known yet. Only the return of a hold may be
    /// repeated.
    Holds,
    All,
}

impl ClaimLocations {
    pub(super) fn find<S: Sharded>(store: &S, claim: &Claim<'_>) -> ClaimLocations {
        let mut one: Option<(Location, &Key<'_>)> = None;
        let keys = claim.once.iter().map(|once| &once.key).chain(claim.charges.iter().map(|charge| &charge.key));
        for key in keys {
            match one {
                None => one = Some((store.locate(key), key)),
                Some((_, first)) if key.shares_partition_with(first) => {}
                Some((location, _)) if store.locate(key) == location => {}
                Some(_) => return ClaimLocations::several(store, claim),
            }
        }
        one.map_or(ClaimLocations::None, |(location, _)| ClaimLocations::One(location))
    }

    /// The locations of the keys, each key by itself.
    #[cold]
    pub(super) fn by_key<S: Sharded>(store: &S, claim: &Claim<'_>) -> SmallVec<[(Location, Charges); 2]> {
        let home = claim.once.as_ref().map(|once| (store.locate(&once.key), Charges::new()));
        home.into_iter().chain(charges_by_key(store, claim, 0..claim.charges.len())).collect()
    }

    #[cold]
    fn several<S: Sharded>(store: &S, claim: &Claim<'_>) -> ClaimLocations {
        let home = claim.once.as_ref().map(|once| (store.locate(&once.key), Charges::new()));
        let mut locations: SmallVec<[(Location, Charges); 2]> = home.into_iter().collect();
        for (at, charge) in claim.charges.iter().enumerate() {
            let location = store.locate(&charge.key);
            match locations.iter_mut().find(|(other, _)| *other == location) {
                Some((_, charges)) => charges.push(at),
                None => locations.push((location, smallvec![at])),
            }
        }
        ClaimLocations::Several(locations)
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    pub(super) async fn settle_split(
        &self,
        claim: &Claim<'_>,
        locations: SmallVec<[(Location, Charges); 2]>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) {
        let began = self.clock.now();
        self.divided.add(claim);
        policy::prepare(claim, began, settlement);
        let mut split = Split::new(self, claim, locations, std::mem::take(&mut settlement.readings));
        split.answer_for_open(began);
        split.peek_if_impossible();
        if let Some(once) = &claim.once {
            if split.settle_home(once, timeout, settlement).await {
                return;
            }
            if split.divide_moving()
                && let Some(left) = self.time_left(timeout, began)
                && split.settle_home(once, left, settlement).await
            {
                return;
            }
        }
        if let Some(first) = split.tightest_part(began) {
            split.settle_in_order(first, timeout, began).await;
        }
        split.settle_rest(self.time_left(timeout, began)).await;
        if split.divide_moving() {
            split.settle_rest(self.time_left(timeout, began)).await;
        }
        split.read_refusals(self.time_left(timeout, began)).await;
        settlement.at = split.settled_at().unwrap_or(began);
        if !split.decide() {
            split.give_back(self.time_left(timeout, began)).await;
        }
        settlement.readings = std::mem::take(&mut split.readings);
        self.local.record(claim, settlement, Recorded::All, self.clock.now());
        if let (Some(once), Some(location)) =
            (claim.once.as_ref().filter(|once| once.keep > Span::ZERO), split.record_location())
        {
            self.record_verdict(location, claim, once, settlement, self.time_left(timeout, began)).await;
        }
    }

    async fn settle_part(&self, part: &mut ClaimPart<'_>, left: Duration) {
        part.outcome = match self.call(part.location, &part.claim, OnceRecord::Whole, left, &mut part.settlement).await
        {
            Ok(()) => PartOutcome::Settled,
            Err(failure) => PartOutcome::Failed(failure),
        };
    }

    async fn give_back(&self, it: &mut PartReturn<'_, '_>, left: Duration) {
        match self.call(it.part.location, &it.claim, OnceRecord::Whole, left, &mut it.settlement).await {
            Ok(()) => {}
            Err(Failure::Moving) => {
                for at in 0..it.claim.charges.len() {
                    self.outbox.push(DeferredClaim::plain(&policy::part_of(&it.claim, &[at]), self.clock.now()));
                }
            }
            Err(failure) => {
                let deferred = DeferredClaim::plain(&it.claim, self.clock.now());
                if failure.is_unsettled() {
                    self.outbox.push(deferred);
                } else {
                    self.drop_unknown(deferred);
                }
            }
        }
    }

    /// Writes the verdict on an idempotent claim, or removes the pending record of one that needs none.
    async fn record_verdict<'a>(
        &self,
        location: Location,
        claim: &Claim<'a>,
        once: &Once<'a>,
        settlement: &Settlement,
        left: Option<Duration>,
    ) {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            _ if !settlement.needs_record(claim) => Span::ZERO,
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        let Some(left) = left else {
            let deferred = DeferredVerdict::new(once, settlement, verdict.allowed, keep);
            self.outbox.push(DeferredClaim::verdict(claim.id, deferred, self.clock.now()));
            return;
        };
        let record_claim = Claim { once: Some(once.clone()), ..policy::part_of(claim, &[]) };
        let record = OnceRecord::Verdict { settlement, passed: verdict.allowed, keep };
        // The breaker has recorded a failure. A record that stays pending makes callers retry.
        let _ = self.call(location, &record_claim, record, left, &mut Settlement::default()).await;
    }
}

impl<'g, 'a, S: Sharded, C: Clock> Split<'g, 'a, S, C> {
    fn new(
        guard: &'g Guarded<S, C>,
        claim: &'g Claim<'a>,
        locations: SmallVec<[(Location, Charges); 2]>,
        readings: SmallVec<[Reading; 4]>,
    ) -> Self {
        let part = |(location, charges)| ClaimPart::new(claim, location, charges);
        let parts = locations.into_iter().map(part).collect();
        Split { guard, claim, parts, unanswered: UnansweredCharges::default(), readings, owed: OwedReturns::All }
    }

    /// Answers for the shards whose breakers are open. If they refuse the claim, the other parts only peek, so that
    /// nothing has to be given back.
    fn answer_for_open(&mut self, now: Timestamp) {
        let mut is_refused = false;
        for part in &mut self.parts {
            let shard = part.location.shard;
            if self.guard.breakers.for_shard(shard).is_closed() {
                continue;
            }
            part.outcome = PartOutcome::Unavailable;
            let unavailable = Unavailable {
                reason: UnavailableReason::Open,
                source: None,
                wait: self.guard.retry_after(Some(shard), now),
            };
            self.guard.read_by_policy(
                self.claim,
                &part.charges,
                unavailable,
                now,
                &mut self.unanswered,
                &mut self.readings,
            );
            is_refused |= refuses(self.claim, &part.charges, &self.readings);
        }
        if is_refused {
            self.peek_only();
        }
    }

    /// Settles the part in the location of the record. Returns true if the answer covers the whole claim, because it
    /// was settled before.
    async fn settle_home(&mut self, once: &Once<'a>, timeout: Duration, settlement: &mut Settlement) -> bool {
        let Some(home) = self.parts.first_mut().filter(|home| home.outcome == PartOutcome::Unknown) else {
            return false;
        };
        home.claim.once = Some(once.clone());
        let pending = OnceRecord::Pending;
        let answer =
            self.guard.call_until_settled(home.location, &home.claim, pending, timeout, &mut home.settlement).await;
        match answer {
            Ok(()) if home.settlement.replay != Replay::First => {
                settlement.clone_from(&home.settlement);
                if settlement.replay == Replay::Conflict {
                    *settlement = Settlement::conflict(self.claim, settlement.at);
                }
                return true;
            }
            Ok(()) => home.outcome = PartOutcome::Settled,
            Err(Failure::Pending) => {
                policy::refuse_as_pending(self.claim, self.guard.clock.now(), settlement);
                return true;
            }
            Err(failure) => home.outcome = PartOutcome::Failed(failure),
        }
        if !policy::vote(&home.claim, &home.settlement.readings) {
            self.peek_only();
        }
        false
    }

    /// Settles the other parts, if there is time.
    async fn settle_rest(&mut self, left: Option<Duration>) {
        let guard = self.guard;
        let rest = self.parts.iter_mut().filter(|part| part.outcome == PartOutcome::Unknown);
        let Some(left) = left else {
            return rest.for_each(|part| part.outcome = PartOutcome::Failed(Failure::Timeout));
        };
        join_all(rest.map(|part| guard.settle_part(part, left))).await;
    }

    /// Replaces the parts whose keys are being moved by one for each of their keys, and one for the record. Returns
    /// whether there are any.
    fn divide_moving(&mut self) -> bool {
        let is_moving = |part: &ClaimPart<'_>| part.outcome == PartOutcome::Failed(Failure::Moving);
        if !self.parts.iter().any(is_moving) {
            return false;
        }
        let (claim, store) = (self.claim, &self.guard.inner);
        for (index, part) in std::mem::take(&mut self.parts).into_iter().enumerate() {
            if !is_moving(&part) {
                self.parts.push(part);
                continue;
            }
            if index == 0 && claim.once.is_some() {
                self.parts.push(ClaimPart::new(claim, part.location, Charges::new()));
            }
            for (location, charges) in charges_by_key(store, claim, part.charges) {
                let mut divided = ClaimPart::new(claim, location, charges);
                if part.is_peek {
                    divided.peek();
                }
                self.parts.push(divided);
            }
        }
        true
    }

    /// Collects the readings, answers for failed parts by policy, and counts the votes.
    fn decide(&mut self) -> bool {
        let now = self.guard.clock.now();
        for part in &self.parts {
            match &part.outcome {
                PartOutcome::Settled => {
                    for (at, reading) in part.charges.iter().zip(&part.settlement.readings) {
                        self.readings[*at] = *reading;
                    }
                }
                PartOutcome::Failed(failure) => {
                    let wait = self.guard.retry_after(Some(part.location.shard), now);
                    let unavailable = Unavailable { reason: UnavailableReason::from(failure), source: None, wait };
                    self.guard.read_by_policy(
                        self.claim,
                        &part.charges,
                        unavailable,
                        now,
                        &mut self.unanswered,
                        &mut self.readings,
                    );
                }
                PartOutcome::Unknown | PartOutcome::Unavailable => {}
            }
        }
        let passes = self.guard.decide(self.claim, &mut self.unanswered, &mut self.readings);
        for part in &self.parts {
            if matches!(&part.outcome, PartOutcome::Failed(failure) if !failure.is_unsettled()) {
                self.guard.release_unknown(self.claim, part.charges.iter().copied(), &self.readings);
            }
        }
        if !passes {
            // A part with room did not know that the claim is refused.
            self.readings.iter_mut().for_each(|reading| reading.delay = Span::ZERO);
        }
        self.owed = if passes { OwedReturns::Nothing } else { OwedReturns::All };
        passes
    }

    /// Gives back the units that were taken: now or, without time left, through the outbox.
    async fn give_back(&mut self, left: Option<Duration>) {
        let settled = self.parts.iter().filter(|part| part.outcome == PartOutcome::Settled);
        let mut returns: Vec<PartReturn<'_, 'a>> = settled.filter_map(ClaimPart::give_back).collect();
        if let Some(left) = left {
            let guard = self.guard;
            self.owed = OwedReturns::Holds;
            join_all(returns.iter_mut().map(|it| guard.give_back(it, left))).await;
            self.owed = OwedReturns::Nothing;
        }
        for it in returns {
            let returned = it.settlement.readings.into_iter().map(Some).chain(std::iter::repeat(None));
            policy::apply_returns(self.claim, &it.took, returned, &mut self.readings);
        }
    }

    /// Sets the units of parts that were not sent yet to 0.
    fn peek_only(&mut self) {
        self.parts.iter_mut().filter(|part| part.outcome == PartOutcome::Unknown).for_each(ClaimPart::peek);
    }

    /// The time of the settlement, by the clock of the first location that settled.
    fn settled_at(&self) -> Option<Timestamp> {
        self.parts.iter().find(|part| part.outcome == PartOutcome::Settled).map(|part| part.settlement.at)
    }

    /// The location of the pending record.
    fn record_location(&self) -> Option<Location> {
        self.parts.first().filter(|home| home.outcome == PartOutcome::Settled).map(|home| home.location)
    }
}

impl<'a> ClaimPart<'a> {
    fn new(claim: &Claim<'a>, location: Location, charges: Charges) -> ClaimPart<'a> {
        let claim = policy::part_of(claim, &charges);
        let (settlement, outcome) = (Settlement::default(), PartOutcome::Unknown);
        ClaimPart { location, charges, claim, settlement, outcome, is_peek: false }
    }

    /// Sets the units to 0.
    fn peek(&mut self) {
        self.is_peek = true;
        let asks = self.claim.charges.iter_mut().filter(|charge| matches!(charge.ask, Ask::Exactly | Ask::UpTo));
        asks.for_each(|charge| charge.units = 0);
    }

    /// The return of the units that were taken there, if any.
    fn give_back(&self) -> Option<PartReturn<'_, 'a>> {
        let answered: Charges = (0..self.settlement.readings.len().min(self.charges.len())).collect();
        let (took, claim) = policy::returns_of(&self.claim, &answered, &self.settlement.readings, self.settlement.at);
        let took: Charges = took.into_iter().map(|at| self.charges[at]).collect();
        (!took.is_empty()).then(|| PartReturn { part: self, took, claim, settlement: Settlement::default() })
    }
}

impl<S: Sharded, C: Clock> Drop for Split<'_, '_, S, C> {
    /// Runs if there was no time to give units back or if the caller went away.
    fn drop(&mut self) {
        if self.owed == OwedReturns::Nothing {
            return;
        }
        let now = self.guard.clock.now();
        for part in &self.parts {
            match part.outcome {
                PartOutcome::Settled => {
                    let deferred = part.give_back().map(|it| DeferredClaim::plain(&it.claim, now));
                    let owed = match self.owed {
                        OwedReturns::Holds => deferred.and_then(DeferredClaim::into_release),
                        OwedReturns::Nothing | OwedReturns::All => deferred,
                    };
                    if let Some(owed) = owed {
                        self.guard.outbox.push(owed);
                    }
                }
                PartOutcome::Unknown => self.guard.release_unknown(self.claim, part.charges.iter().copied(), &[]),
                PartOutcome::Unavailable | PartOutcome::Failed(_) => {}
            }
        }
        if !self.readings.is_empty() {
            self.guard.return_local(self.claim, &mut self.unanswered, &mut self.readings);
        }
    }
}

/// Some charges of a claim by their keys.
fn charges_by_key<S: Sharded>(
    store: &S,
    claim: &Claim<'_>,
    charges: impl IntoIterator<Item = usize>,
) -> SmallVec<[(Location, Charges); 2]> {
    let mut by_key: SmallVec<[(Location, Charges); 2]> = SmallVec::new();
    for at in charges {
        let key = &claim.charges[at].key;
        let same = by_key.iter_mut().find(|(_, others)| others.iter().any(|other| claim.charges[*other].key == *key));
        match same {
            Some((_, others)) => others.push(at),
            None => by_key.push((store.locate(key), smallvec![at])),
        }
    }
    by_key
}

/// Whether one of these charges refuses the claim.
fn refuses(claim: &Claim<'_>, charges: &[usize], readings: &[Reading]) -> bool {
    charges.iter().any(|at| {
        let charge = &claim.charges[*at];
        charge.ask == Ask::Exactly && charge.mode == Mode::Enforce && !readings[*at].admits
    })
}
