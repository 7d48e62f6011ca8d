//! Refusing admitted requests whose delay is longer than their caller accepts.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Mode, Reading, Request, Settlement, Span, Wait};
use tollgate_rules::{LimitArena, MatchedRules};
use tollgate_store::Store;

use crate::decision::Decision;
use crate::ids;
use crate::limiter::Limiter;

impl<S: Store> Limiter<S> {
    /// Turns a decision with a delay above `max` into a refusal, and gives back what it took.
    pub async fn refuse_for_delay(&self, request: &Request<'_>, decision: &mut Decision, max: Span) {
        self.give_back(request, decision).await;
        decision.refuse_for_delay(max);
    }

    /// Gives back everything that a decision took, in one claim, and updates its readings.
    async fn give_back(&self, request: &Request<'_>, decision: &mut Decision) {
        let Decision { in_force, matched, settlement, receipt, .. } = decision;
        let id = receipt.take().map_or_else(ids::next, |receipt| receipt.id);
        let (arena, mut again) = (LimitArena::default(), MatchedRules::default());
        let mut claim = Claim { id, charges: SmallVec::new(), once: None, timeout: None };
        // The same rules resolved the same request before: this can't fail.
        let _ = self.resolve(in_force, request, &arena, &mut claim, &mut again);
        if (&again.applied, &again.limits) != (&matched.applied, &matched.limits) {
            // The caller's limits have just changed: what was taken under the old ones is not given back.
            return;
        }
        let back = Ask::Return { taken_at: settlement.at };
        let took = claim.charges.into_iter().zip(&mut settlement.readings).filter(|(_, reading)| reading.taken > 0);
        let (charges, mut readings): (SmallVec<_>, SmallVec<[&mut Reading; 4]>) =
            took.map(|(charge, reading)| (Charge { ask: back, units: reading.taken, ..charge }, reading)).unzip();
        let mut given_back = Settlement::default();
        self.settle(&Claim { id, charges, once: None, timeout: None }, &mut given_back).await;
        for (reading, returned) in readings.iter_mut().zip(&given_back.readings) {
            (reading.taken, reading.remaining, reading.reset_after) = (0, returned.remaining, returned.reset_after);
        }
    }
}

impl Decision {
    /// Turns a decision with a delay above `max` into a refusal by the limit with the longest delay. The wait ends
    /// when that delay would be `max`.
    pub fn refuse_for_delay(&mut self, max: Span) {
        let Decision { matched, settlement, verdict, .. } = self;
        let over = verdict.delay.as_micros().saturating_sub(max.as_micros());
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
