//! Checks in a row, by one worker or for one connection.

use smallvec::SmallVec;
use tollgate_core::{Claim, Request, Settlement, Verdict};
use tollgate_rules::{Asker, Matched, RequestError, Room};
use tollgate_store::{Immediate, Store};

use crate::decision::{Decision, Held};
use crate::ids;
use crate::limiter::{Limiter, now, receipt, verdict};

/// A limiter in the hands of one caller, which keeps what every check needs: the rules, looked up again only when others are in
/// force, and the room for a decision.
#[derive(Debug)]
pub struct Session<'l, S> {
    limiter: &'l Limiter<S>,
    /// As of this many.
    installed: u64,
    decision: Decision,
}

impl<'l, S: Store> Session<'l, S> {
    pub(crate) fn new(limiter: &'l Limiter<S>) -> Session<'l, S> {
        // The count before the rules: if others come between, they are looked up once more than needed.
        let installed = limiter.installed();
        let decision = Decision {
            rules: Held::Kept(limiter.rules()),
            matched: Matched::default(),
            verdict: Verdict::default(),
            settlement: Settlement::default(),
            receipt: None,
        };
        Session { limiter, installed, decision }
    }

    /// Decides a request, as [`Limiter::check`] does. The decision is there until the next one.
    pub async fn check(&mut self, request: &Request<'_>) -> Result<&Decision, RequestError> {
        let limiter = self.limiter;
        let mut timing = limiter.timing();
        let decision = self.begin();
        let asker = request.once.map(|_| Asker::of(request));
        let room = Room::default();
        let mut claim = Claim { id: ids::of(request), charges: SmallVec::new(), once: None, patience: None };
        let Decision { rules, matched, settlement, .. } = &mut *decision;
        let sound = limiter.resolve(rules, request, &room, &mut claim, matched)?;
        if let Some(asker) = &asker {
            limiter.once(&mut claim, rules, matched, request, asker);
        }
        timing.asking(&claim);
        limiter.settle(&claim, settlement).await;
        timing.answered();
        let verdict = verdict(&claim, matched, settlement, sound, limiter.clock());
        let receipt = receipt(rules, request, &claim, matched, settlement, verdict);
        timing.end(rules, request, &claim, matched, settlement, verdict);
        drop(claim);
        (decision.verdict, decision.receipt) = (verdict, receipt);
        Ok(&self.decision)
    }

    /// The same without an executor, on a store that never waits.
    pub fn check_now(&mut self, request: &Request<'_>) -> Result<&Decision, RequestError>
    where
        S: Immediate,
    {
        let limiter = self.limiter;
        let mut timing = limiter.timing();
        let decision = self.begin();
        let asker = request.once.map(|_| Asker::of(request));
        let room = Room::default();
        let mut claim = Claim { id: ids::of(request), charges: SmallVec::new(), once: None, patience: None };
        let Decision { rules, matched, settlement, .. } = &mut *decision;
        let sound = limiter.resolve(rules, request, &room, &mut claim, matched)?;
        if let Some(asker) = &asker {
            limiter.once(&mut claim, rules, matched, request, asker);
        }
        timing.asking(&claim);
        now(limiter.settle(&claim, settlement));
        timing.answered();
        let verdict = verdict(&claim, matched, settlement, sound, limiter.clock());
        let receipt = receipt(rules, request, &claim, matched, settlement, verdict);
        timing.end(rules, request, &claim, matched, settlement, verdict);
        drop(claim);
        (decision.verdict, decision.receipt) = (verdict, receipt);
        Ok(&self.decision)
    }

    /// Forgets the last decision, and follows the rules.
    fn begin(&mut self) -> &mut Decision {
        let installed = self.limiter.installed();
        if installed != self.installed {
            self.installed = installed;
            self.decision.rules = Held::Kept(self.limiter.rules());
        }
        self.decision.clear();
        &mut self.decision
    }
}
