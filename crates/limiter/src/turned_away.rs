//! Requests that were admitted and are not served all the same, since they would have to wait for too long before.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Mode, Reading, Request, Settlement, Span, Wait};
use tollgate_rules::{Matched, Room};
use tollgate_store::Store;

use crate::decision::Decision;
use crate::ids;
use crate::limiter::Limiter;

impl<S: Store> Limiter<S> {
    /// Makes a refusal of a decision whose delay is above `most`, and gives back all that was taken.
    pub(crate) async fn turn_away(&self, request: &Request<'_>, decision: &mut Decision, most: Span) {
        self.give_back(request, decision).await;
        decision.put_off(most);
    }

    /// Gives back all that a decision took, in one claim. The decision says what is left then.
    async fn give_back(&self, request: &Request<'_>, decision: &mut Decision) {
        let Decision { rules, matched, settlement, receipt, .. } = decision;
        let id = receipt.take().map_or_else(ids::next, |receipt| receipt.id);
        let (room, mut again) = (Room::default(), Matched::default());
        let mut claim = Claim { id, charges: SmallVec::new(), once: None, patience: None };
        // The same rules made the same charges of the same request before: it can't fail.
        let _ = self.resolve(rules, request, &room, &mut claim, &mut again);
        if (&again.applied, &again.limits) != (&matched.applied, &matched.limits) {
            // The caller has other limits since a moment ago: what was taken under the old ones stays taken.
            return;
        }
        let back = Ask::Return { taken_at: settlement.at };
        let took = claim.charges.into_iter().zip(&mut settlement.readings).filter(|(_, reading)| reading.taken > 0);
        let (charges, mut readings): (SmallVec<_>, SmallVec<[&mut Reading; 4]>) =
            took.map(|(charge, reading)| (Charge { ask: back, units: reading.taken, ..charge }, reading)).unzip();
        let mut given_back = Settlement::default();
        self.settle(&Claim { id, charges, once: None, patience: None }, &mut given_back).await;
        for (reading, returned) in readings.iter_mut().zip(&given_back.readings) {
            (reading.taken, reading.remaining, reading.reset_after) = (0, returned.remaining, returned.reset_after);
        }
    }
}

impl Decision {
    /// Makes a refusal of a decision whose delay is above `most`: by the limit with the longest delay, until that would be `most`.
    pub(crate) fn put_off(&mut self, most: Span) {
        let Decision { matched, settlement, verdict, .. } = self;
        let over = verdict.delay.as_micros().saturating_sub(most.as_micros());
        let wait = Wait::For(Span::from_micros(over.max(1)));
        let readings = &mut settlement.readings;
        let enforced = || {
            let modes = matched.applied.iter().map(|applied| applied.mode).enumerate();
            modes.filter(|(_, mode)| matches!(mode, Mode::Enforce | Mode::AnyOf)).map(|(at, _)| at)
        };
        let slowest = enforced().max_by_key(|at| readings[*at].delay);
        if let Some(at) = slowest {
            (readings[at].admits, readings[at].wait) = (false, wait);
        }
        readings.iter_mut().for_each(|reading| reading.delay = Span::ZERO);
        (verdict.allowed, verdict.denied_by, verdict.wait, verdict.delay) = (false, slowest, wait, Span::ZERO);
        verdict.tightest = enforced().min_by_key(|at| readings[*at].remaining);
    }
}
