//! Observing every decision: for metrics and logs.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Charge, Claim, Limit, Reading, Replay, Request, Settlement, Verdict};
use tollgate_rules::{AppliedRule, Domain, MatchedRules, Rule, Ruleset};
use tollgate_store::{Stopwatch, StopwatchMark};

/// Is called for every decision of a limiter, on the thread that made it. It must be fast and must not block.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Whether to measure the check that is about to begin.
    fn should_time(&self) -> bool;

    /// Records a decision. Invalid requests and idempotency conflicts are not decisions.
    fn record(&self, event: &DecisionEvent<'_, '_>);
}

/// A decision, with everything that led to it.
#[derive(Clone, Copy, Debug)]
pub struct DecisionEvent<'s, 'a> {
    /// The request.
    pub request: &'s Request<'a>,
    /// The rules that were in force.
    pub rules: &'s Ruleset,
    /// The claim that was settled.
    pub claim: &'s Claim<'a>,
    /// The rules of the claim's charges.
    pub matched: &'s MatchedRules,
    /// The settlement of the claim.
    pub settlement: &'s Settlement,
    /// The verdict on the settlement.
    pub verdict: &'s Verdict,
    /// How long the check took, if it was measured.
    pub timing: Option<CheckTiming>,
}

/// The duration of a check, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTiming {
    /// The whole check.
    pub total: u64,
    /// The settlement in the store; `None` if the store was not involved.
    pub store: Option<u64>,
}

/// One limit of a decision.
#[derive(Clone, Copy, Debug)]
pub struct LimitEvent<'s, 'a> {
    /// The rule of the limit.
    pub rule: &'s Rule,
    /// How the rule applied.
    pub applied: &'s AppliedRule,
    /// The charge on its counter.
    pub charge: &'s Charge<'a>,
    /// The reading of the counter.
    pub reading: &'s Reading,
    /// The quota of which the reading says what remains: that of the limit, unless it was lowered.
    pub quota: u64,
}

impl<'s, 'a> DecisionEvent<'s, 'a> {
    /// The domain of the request.
    #[inline]
    pub fn domain(&self) -> &'s Domain {
        &self.rules.domains()[self.matched.domain]
    }

    /// Whether the request passed because no rule applied to it.
    #[inline]
    pub fn is_unmatched(&self) -> bool {
        self.matched.is_empty() && self.verdict.allowed && self.settlement.replay == Replay::First
    }

    /// The limit at this index of the claim.
    pub fn limit(&self, at: usize) -> Option<LimitEvent<'s, 'a>> {
        let applied = self.matched.applied.get(at)?;
        let charge = self.claim.charges.get(at)?;
        Some(LimitEvent {
            rule: self.domain().rule(applied)?,
            applied,
            charge,
            reading: self.settlement.readings.get(at)?,
            quota: self.settlement.counted_quota(charge),
        })
    }

    /// Every limit, in the order of the claim. Empty for the replay of a decision that other rules made.
    #[inline]
    pub fn limits(&self) -> impl Iterator<Item = LimitEvent<'s, 'a>> + use<'s, 'a> {
        let (domain, settlement) = (self.domain(), self.settlement);
        let settled = self.matched.applied.iter().zip(&self.claim.charges).zip(&self.settlement.readings);
        settled.filter_map(move |((applied, charge), reading)| {
            let quota = settlement.counted_quota(charge);
            Some(LimitEvent { rule: domain.rule(applied)?, applied, charge, reading, quota })
        })
    }
}

impl<'a> LimitEvent<'_, 'a> {
    /// The limit that applies to the caller.
    #[inline]
    pub fn limit(&self) -> &'a Limit {
        self.charge.limit
    }
}

/// The witness of a limiter, with a stopwatch.
#[derive(Clone, Debug)]
pub(crate) struct WitnessHandle {
    witness: Arc<dyn Witness>,
    stopwatch: Stopwatch,
}

/// Measures one check, if there is a witness and it samples this check.
#[derive(Debug)]
pub(crate) struct CheckTimer<'w> {
    handle: Option<&'w WitnessHandle>,
    times: Option<CheckTimes>,
}

/// The times that a timer has recorded.
#[derive(Clone, Copy, Debug)]
struct CheckTimes {
    started: StopwatchMark,
    /// When the claim was sent to the store, and when it was settled.
    store: Option<(StopwatchMark, StopwatchMark)>,
}

impl WitnessHandle {
    pub(crate) fn new(witness: Arc<dyn Witness>) -> WitnessHandle {
        WitnessHandle { witness, stopwatch: Stopwatch::default() }
    }
}

impl<'w> CheckTimer<'w> {
    /// Starts a check.
    #[inline]
    pub(crate) fn start(handle: Option<&'w WitnessHandle>) -> CheckTimer<'w> {
        let timed = handle.filter(|handle| handle.witness.should_time());
        let times = timed.map(|handle| CheckTimes { started: handle.stopwatch.mark(), store: None });
        CheckTimer { handle, times }
    }

    /// The claim is sent to the store, unless it is empty.
    #[inline]
    pub(crate) fn settle_started(&mut self, claim: &Claim<'_>) {
        if let (Some(handle), Some(times)) = (self.handle, &mut self.times)
            && (!claim.charges.is_empty() || claim.once.is_some())
        {
            let now = handle.stopwatch.mark();
            times.store = Some((now, now));
        }
    }

    /// The store has settled the claim.
    #[inline]
    pub(crate) fn settle_ended(&mut self) {
        if let (Some(handle), Some(CheckTimes { store: Some((_, ended)), .. })) = (self.handle, &mut self.times) {
            *ended = handle.stopwatch.mark();
        }
    }

    /// Ends the check and calls the witness.
    #[inline]
    pub(crate) fn finish<'a>(
        self,
        rules: &Ruleset,
        request: &Request<'a>,
        claim: &Claim<'a>,
        matched: &MatchedRules,
        settlement: &Settlement,
        verdict: &Verdict,
    ) {
        let Some(handle) = self.handle.filter(|_| settlement.replay != Replay::Conflict) else { return };
        let stopwatch = &handle.stopwatch;
        let timing = self.times.map(|times| CheckTiming {
            total: stopwatch.between(times.started, stopwatch.mark()),
            store: times.store.map(|(started, ended)| stopwatch.between(started, ended)),
        });
        handle.witness.record(&DecisionEvent { request, rules, claim, matched, settlement, verdict, timing });
    }
}
