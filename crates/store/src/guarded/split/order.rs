//! The order in which the parts of a claim are settled, so that other callers do not miss what it takes for a moment.
//!
//! A claim that asks for more than a limit can ever hold only peeks at the other parts. Where the last readings leave
//! little room, the parts are settled one after the other, the one that will probably refuse first. The deny cache does
//! not cache refusals of counters that several callers share and that were part of such a claim.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Charge, Claim, Mode, Timestamp};

use super::{ClaimPart, PartOutcome, Split};
use crate::clock::Clock;
use crate::guarded::local::Room;
use crate::guarded::policy;
use crate::join::join_all;
use crate::sharded::Sharded;

impl<S: Sharded, C: Clock> Split<'_, '_, S, C> {
    /// If an enforced charge asks for more than its limit can ever hold, the claim is refused whatever the other parts say,
    /// so they only peek.
    pub(super) fn peek_if_impossible(&mut self) {
        let is_impossible = |charge: &Charge<'_>| {
            charge.ask == Ask::Exactly
                && charge.mode == Mode::Enforce
                && charge.limit.algorithm() != Algorithm::Concurrency
                && charge.units > charge.limit.quota()
        };
        if !self.claim.charges.iter().any(is_impossible) {
            return;
        }
        for part in self.parts.iter_mut().filter(|part| part.outcome == PartOutcome::Unknown) {
            // A part that refuses by itself takes nothing.
            if !part.claim.charges.iter().any(is_impossible) {
                part.peek();
            }
        }
    }

    /// The index of the part to settle first, if the parts should be settled one after the other: by the last readings
    /// one of them has little room. The part that will probably refuse comes first, else that of the caller: what it
    /// takes for a moment, only the caller misses.
    pub(super) fn tightest_part(&self, now: Timestamp) -> Option<usize> {
        let mut waiting = self.parts.iter().enumerate().filter(|(_, part)| part.outcome == PartOutcome::Unknown);
        let room = |part: &ClaimPart<'_>| {
            let enforced = part.claim.charges.iter().filter(|charge| charge.mode == Mode::Enforce);
            enforced.filter_map(|charge| self.guard.local.room(charge, now)).min()
        };
        let tightest = waiting.clone().filter_map(|(at, part)| Some((room(part)?, at))).min()?;
        match tightest {
            (Room::Refuses, at) => Some(at),
            (Room::Tight, at) => {
                let is_callers = |part: &ClaimPart<'_>| part.claim.charges.iter().all(|it| it.key.caller().is_some());
                waiting.find(|(_, part)| is_callers(part)).map(|(own, _)| own).or(Some(at))
            }
            (Room::Enough, _) => None,
        }
    }

    /// Settles one part before the others. If it refuses, they only peek.
    pub(super) async fn settle_in_order(&mut self, first: usize, timeout: Duration, began: Timestamp) {
        let Some(left) = self.guard.time_left(timeout, began) else { return };
        let guard = self.guard;
        let part = &mut self.parts[first];
        guard.settle_part(part, left).await;
        if part.outcome == PartOutcome::Settled && !policy::vote(&part.claim, &part.settlement.readings) {
            self.peek_only();
        }
    }

    /// Settles parts again that only peeked, with the charges for which they have no room: these take nothing, and their
    /// readings say for how long there is no room.
    pub(super) async fn read_refusals(&mut self, left: Option<Duration>) {
        let (guard, claim, Some(left)) = (self.guard, self.claim, left) else { return };
        let again = self.parts.iter_mut().filter_map(|part| part.charge_without_room(claim).then_some(part));
        join_all(again.map(|part| guard.settle_part(part, left))).await;
    }
}

impl ClaimPart<'_> {
    /// After a peek: restores the units of the charges that have no room for them. Returns whether there are any. Facts
    /// and orders were carried out, and are not repeated.
    fn charge_without_room(&mut self, whole: &Claim<'_>) -> bool {
        let are_requests = self.claim.charges.iter().all(|charge| matches!(charge.ask, Ask::Exactly | Ask::UpTo));
        if !self.is_peek || self.outcome != PartOutcome::Settled || self.claim.once.is_some() || !are_requests {
            return false;
        }
        let mut is_any = false;
        for ((charge, reading), at) in self.claim.charges.iter_mut().zip(&self.settlement.readings).zip(&self.charges) {
            let units = whole.charges[*at].units;
            if charge.ask == Ask::Exactly && units > reading.remaining {
                charge.units = units;
                is_any = true;
            }
        }
        is_any
    }
}
