//! Settlements: idempotent claims that only record facts, such as settled receipts and debits or refunds with an
//! idempotency key.
//!
//! Such a claim decides nothing, so the caller need not wait for the store. It is idempotent, so sending it again is
//! safe. It is therefore never counted in local memory: if its shard is unavailable or does not answer, the whole claim
//! waits in the outbox until it is delivered. Until then its readings are assumed.
//!
//! If the counters live in several locations, each part is settled once by itself. The part in the location of the
//! record is sent first, under the claim's own key. Its answer says whether a different claim used the key before, and
//! nothing is sent to other locations without that answer. The other parts are settled next to their counters, under
//! names derived from the claim's key. A repetition of the claim, also after a crash half way, takes the same steps and
//! finds the completed ones done.
//!
//! Guarantees, for as long as a record lasts (`Once::keep`; for a receipt, the time within which it may be settled):
//!
//! - A settlement takes effect at most once, however often it is repeated, also if the outcome of an attempt is unknown.
//! - An accepted settlement is delivered if this server keeps running and the store recovers before the settlement has
//!   lost its effect. If an answer was lost, the settlement is sent again for half of `keep`. After that it is unknown
//!   whether its record still exists, so it is dropped and counted, as is a settlement that does not fit in the outbox.
//! - A different claim with the same key is a conflict, also while the first one waits in the outbox.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Once, Reading, Replay, Settlement, Source, Span, Timestamp, Wait};

use super::Guarded;
use super::deferred::{self, DeferredClaim};
use super::local::Recorded;
use super::outbox::PushOutcome;
use super::policy::{self, Charges};
use super::split::ClaimLocations;
use crate::clock::Clock;
use crate::join::join_all;
use crate::sharded::{Failure, Location, OnceRecord, Sharded};

/// The part of a settlement that belongs to one location.
struct SettlementPart<'a> {
    location: Location,
    /// The indices of the claim's charges that live there.
    charges: Charges,
    /// With the key under which the part is settled once.
    claim: Claim<'a>,
    settlement: Settlement,
    result: Result<(), Delivery>,
}

/// The state of a settlement that was not confirmed by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// The store did not receive it.
    NotSent,
    /// The store may have settled it.
    Unknown,
}

/// A settlement that is being delivered. If the caller goes away meanwhile, the settlement goes to the outbox.
struct DeliveryGuard<'g, 'a, S: Sharded, C: Clock> {
    guard: &'g Guarded<S, C>,
    origin: DeliveryOrigin<'g, 'a>,
    since: Timestamp,
    is_finished: bool,
}

/// Where a settlement that is being delivered comes from.
enum DeliveryOrigin<'g, 'a> {
    Claim(&'g Claim<'a>, &'g Once<'a>),
    Outbox(&'g DeferredClaim),
}

/// The idempotency key of a claim that is a settlement. A claim without charges only records its key.
pub(super) fn settlement_key<'c, 'a>(claim: &'c Claim<'a>) -> Option<&'c Once<'a>> {
    let once = claim.once.as_ref().filter(|once| once.keep > Span::ZERO)?;
    claim.charges.iter().all(is_fact).then_some(once)
}

fn is_fact(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Regardless | Ask::Return { .. })
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Delivers a settlement now or, if that fails, through the outbox.
    pub(super) async fn settle_once<'a>(&self, claim: &Claim<'a>, once: &Once<'a>, settlement: &mut Settlement) {
        let since = self.clock.now();
        assume(claim, since, Source::Assumed, settlement);
        if self.outbox.has_conflict(once) {
            *settlement = Settlement::conflict(claim, since);
            return;
        }
        let mut delivery =
            DeliveryGuard { guard: self, origin: DeliveryOrigin::Claim(claim, once), since, is_finished: false };
        let locations = ClaimLocations::find(&self.inner, claim);
        let timeout = self.timeout_of(claim, self.longest_deadline(&locations));
        let result = match timeout.filter(|_| !self.local.owes(claim)) {
            Some(timeout) => self.deliver(claim, once, locations, timeout, settlement).await,
            None => Err(Delivery::NotSent),
        };
        self.local.record(claim, settlement, Recorded::Countable, self.clock.now());
        if delivery.finish(result) == PushOutcome::Conflict {
            *settlement = Settlement::conflict(claim, since);
        }
    }

    /// Answers a settlement without calling the store, and puts it in the outbox.
    pub(super) fn defer<'a>(&self, claim: &Claim<'a>, once: &Once<'a>, source: Source, settlement: &mut Settlement) {
        let since = self.clock.now();
        assume(claim, since, source, settlement);
        let mut delivery =
            DeliveryGuard { guard: self, origin: DeliveryOrigin::Claim(claim, once), since, is_finished: false };
        if delivery.finish(Err(Delivery::NotSent)) == PushOutcome::Conflict {
            *settlement = Settlement::conflict(claim, since);
        }
    }

    /// Delivers a settlement from the outbox.
    pub(super) async fn redeliver(&self, deferred: &DeferredClaim) {
        let (claim, since) = (deferred.claim(), self.clock.now());
        let Some(once) = &claim.once else { return };
        let mut delivery =
            DeliveryGuard { guard: self, origin: DeliveryOrigin::Outbox(deferred), since, is_finished: false };
        let locations = ClaimLocations::find(&self.inner, &claim);
        let (deadline, mut settlement) = (self.longest_deadline(&locations), Settlement::default());
        let result = match deferred.record() {
            record @ OnceRecord::Part(_) => {
                self.deliver_to(self.inner.locate(&once.key), &claim, record, Some(deadline), &mut settlement).await
            }
            _ => {
                assume(&claim, since, Source::Assumed, &mut settlement);
                self.deliver(&claim, once, locations, deadline, &mut settlement).await
            }
        };
        delivery.finish(result);
    }

    /// Delivers a settlement to all of its locations. Fails if the location of the record did not confirm it; then the
    /// other locations received nothing. Parts that other locations did not confirm go to the outbox.
    async fn deliver<'a>(
        &self,
        claim: &Claim<'a>,
        once: &Once<'a>,
        locations: ClaimLocations,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Delivery> {
        let began = self.clock.now();
        let mut locations = match locations {
            ClaimLocations::None => return Ok(()),
            ClaimLocations::One(location) => {
                let mut answer = Settlement::default();
                self.deliver_to(location, claim, OnceRecord::Whole, Some(timeout), &mut answer).await?;
                *settlement = answer;
                return Ok(());
            }
            ClaimLocations::Several(locations) => locations.into_iter(),
        };
        let Some((location, charges)) = locations.next() else { return Ok(()) };
        let mut home = SettlementPart::new(claim, once.clone(), location, charges);
        self.deliver_to(location, &home.claim, OnceRecord::Whole, Some(timeout), &mut home.settlement).await?;
        (settlement.at, settlement.replay) = (home.settlement.at, home.settlement.replay);
        let matches_claim = home.read_into(settlement);
        match home.settlement.replay {
            Replay::Conflict => *settlement = Settlement::conflict(claim, settlement.at),
            // The first claim was made by other rules and had other parts.
            Replay::Again { .. } if !matches_claim => settlement.readings = home.settlement.readings,
            Replay::First | Replay::Again { .. } => {
                let part = |(location, charges): (Location, Charges)| {
                    let key = claim.charges[*charges.first()?].key.clone();
                    Some(SettlementPart::new(claim, Once { key, ..once.clone() }, location, charges))
                };
                let parts = locations.filter_map(part).collect();
                let name = deferred::claim_name(&once.key);
                self.deliver_parts(parts, name, self.time_left(timeout, began), settlement).await;
            }
        }
        Ok(())
    }

    /// Delivers the parts that do not live with the record of the claim with this name.
    async fn deliver_parts(
        &self,
        mut parts: SmallVec<[SettlementPart<'_>; 2]>,
        name: u128,
        left: Option<Duration>,
        settlement: &mut Settlement,
    ) {
        let since = self.clock.now();
        join_all(parts.iter_mut().map(|part| async move {
            let SettlementPart { location, claim, settlement, result, .. } = part;
            *result = self.deliver_to(*location, claim, OnceRecord::Part(name), left, settlement).await;
        }))
        .await;
        for part in &parts {
            let Some(once) = &part.claim.once else { continue };
            match part.result {
                Ok(()) => {
                    part.read_into(settlement);
                    self.outbox.remove(once, Some(name));
                }
                Err(delivery) => {
                    let mut deferred = DeferredClaim::settlement(&part.claim, once, Some(name), since);
                    deferred.note_unknown(delivery.unknown_since(since));
                    self.outbox.push(deferred);
                }
            }
        }
    }

    /// Delivers a settlement, or a part of one, to one location.
    async fn deliver_to(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Option<Duration>,
        settlement: &mut Settlement,
    ) -> Result<(), Delivery> {
        let is_closed = self.breakers.for_shard(location.shard).is_closed();
        let timeout = timeout.filter(|_| is_closed).ok_or(Delivery::NotSent)?;
        match self.call_until_settled(location, claim, record, timeout, settlement).await {
            Ok(()) => Ok(()),
            Err(Failure::Pending | Failure::Moving) => Err(Delivery::NotSent),
            Err(_) => Err(Delivery::Unknown),
        }
    }
}

impl Delivery {
    /// The time since which the outcome is unknown, for an attempt that began at `began`.
    fn unknown_since(self, began: Timestamp) -> Option<Timestamp> {
        match self {
            Delivery::NotSent => None,
            Delivery::Unknown => Some(began),
        }
    }
}

impl<'a> SettlementPart<'a> {
    fn new(claim: &Claim<'a>, once: Once<'a>, location: Location, charges: Charges) -> SettlementPart<'a> {
        let claim = Claim { once: Some(once), ..policy::part_of(claim, &charges) };
        SettlementPart { location, charges, claim, settlement: Settlement::default(), result: Ok(()) }
    }

    /// Copies the part's readings to the whole. Returns whether they match the claim's charges: the readings of a replay
    /// may come from other rules.
    fn read_into(&self, settlement: &mut Settlement) -> bool {
        let matches_claim = self.settlement.readings.len() == self.charges.len();
        if matches_claim && self.settlement.replay != Replay::Conflict {
            for (at, reading) in self.charges.iter().zip(&self.settlement.readings) {
                settlement.readings[*at] = *reading;
            }
        }
        matches_claim
    }
}

impl<S: Sharded, C: Clock> DeliveryGuard<'_, '_, S, C> {
    /// Removes a delivered settlement from the outbox, or puts an undelivered one there.
    fn finish(&mut self, result: Result<(), Delivery>) -> PushOutcome {
        self.is_finished = true;
        match (result, &self.origin) {
            (Ok(()), DeliveryOrigin::Claim(_, once)) => self.guard.outbox.remove(once, None),
            (Ok(()), DeliveryOrigin::Outbox(deferred)) => self.guard.outbox.remove_claim(deferred),
            (Err(delivery), _) => return self.push(delivery),
        }
        PushOutcome::Queued
    }

    fn push(&self, delivery: Delivery) -> PushOutcome {
        let mut deferred = match self.origin {
            DeliveryOrigin::Claim(claim, once) => DeferredClaim::settlement(claim, once, None, self.since),
            DeliveryOrigin::Outbox(deferred) => deferred.clone(),
        };
        deferred.note_unknown(delivery.unknown_since(self.since));
        self.guard.outbox.push(deferred)
    }
}

impl<S: Sharded, C: Clock> Drop for DeliveryGuard<'_, '_, S, C> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.push(Delivery::Unknown);
        }
    }
}

/// The readings of a settlement that the store has not confirmed yet. Facts need no room.
fn assume(claim: &Claim<'_>, now: Timestamp, source: Source, settlement: &mut Settlement) {
    policy::prepare(claim, now, settlement);
    for reading in &mut settlement.readings {
        *reading = Reading { admits: true, wait: Wait::None, source, ..*reading };
    }
}
