//! Whoever wants to see every decision: counters, logs.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Charge, Claim, Limit, Reading, Replay, Request, Settlement, Verdict};
use tollgate_rules::{Applied, Domain, Matched, Rule, Ruleset};
use tollgate_store::{Pressed, Stopwatch};

/// Sees every decision of a limiter, on the thread that made it. It must be quick, and must not wait.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Whether the check that begins now is to be timed.
    fn times(&self) -> bool;

    /// A request was decided. One that was refused as a whole, or whose idempotency key another has, was not.
    fn saw(&self, seen: &Seen<'_, '_>);
}

/// A decision, with all that led to it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s, 'a> {
    /// What was asked.
    pub request: &'s Request<'a>,
    /// The rules by which it was decided.
    pub rules: &'s Ruleset,
    /// What was asked of the store.
    pub claim: &'s Claim<'a>,
    /// The rules behind that.
    pub matched: &'s Matched,
    /// What the store said.
    pub settlement: &'s Settlement,
    /// What follows.
    pub verdict: Verdict,
    /// How long it took, if it was timed.
    pub took: Option<Took>,
}

/// How long a decision took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// All of it.
    pub whole: u64,
    /// The store's part; `None` if it was not asked.
    pub store: Option<u64>,
}

/// One limit that had a say.
#[derive(Clone, Copy, Debug)]
pub struct SeenLimit<'s, 'a> {
    /// Its rule.
    pub rule: &'s Rule,
    /// How the rule applied.
    pub applied: &'s Applied,
    /// What was asked of which counter.
    pub charge: &'s Charge<'a>,
    /// What that said.
    pub reading: &'s Reading,
}

impl<'s, 'a> Seen<'s, 'a> {
    /// The domain.
    pub fn domain(&self) -> &'s Domain {
        &self.rules.domains()[self.matched.domain]
    }

    /// The limit at this place in the claim.
    pub fn limit(&self, at: usize) -> Option<SeenLimit<'s, 'a>> {
        let applied = self.matched.applied.get(at)?;
        Some(SeenLimit {
            rule: self.domain().rule(applied)?,
            applied,
            charge: self.claim.charges.get(at)?,
            reading: self.settlement.readings.get(at)?,
        })
    }

    /// Every limit, in the order of the claim. Of a decision that was reached before, by other rules, none is known.
    pub fn limits(&self) -> impl Iterator<Item = SeenLimit<'s, 'a>> + use<'s, 'a> {
        let seen = *self;
        (0..self.matched.applied.len()).filter_map(move |at| seen.limit(at))
    }
}

impl<'a> SeenLimit<'_, 'a> {
    /// What the caller is held to.
    pub fn limit(&self) -> &'a Limit {
        self.charge.limit
    }
}

/// The witness of a limiter, and its stopwatch.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    witness: Arc<dyn Witness>,
    stopwatch: Stopwatch,
}

/// When a check began, asked the store, and heard from it: where somebody wants to know.
#[derive(Debug)]
pub(crate) struct Timing<'w> {
    watch: Option<&'w Watch>,
    /// The moments so far.
    pressed: Option<(Pressed, Option<(Pressed, Pressed)>)>,
}

impl Watch {
    pub(crate) fn new(witness: Arc<dyn Witness>) -> Watch {
        Watch { witness, stopwatch: Stopwatch::default() }
    }
}

impl<'w> Timing<'w> {
    /// A check begins.
    #[inline]
    pub(crate) fn begin(watch: Option<&'w Watch>) -> Timing<'w> {
        let timed = watch.filter(|watch| watch.witness.times());
        Timing { watch, pressed: timed.map(|watch| (watch.stopwatch.press(), None)) }
    }

    /// The store is asked, unless there is nothing to ask.
    #[inline]
    pub(crate) fn asking(&mut self, claim: &Claim<'_>) {
        if let (Some(watch), Some((_, store))) = (self.watch, &mut self.pressed)
            && (!claim.charges.is_empty() || claim.once.is_some())
        {
            let now = watch.stopwatch.press();
            *store = Some((now, now));
        }
    }

    /// It has answered.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if let (Some(watch), Some((_, Some((_, answered))))) = (self.watch, &mut self.pressed) {
            *answered = watch.stopwatch.press();
        }
    }

    /// The check has ended.
    #[inline]
    pub(crate) fn end<'a>(
        self,
        rules: &Ruleset,
        request: &Request<'a>,
        claim: &Claim<'a>,
        matched: &Matched,
        settlement: &Settlement,
        verdict: Verdict,
    ) {
        let Some(watch) = self.watch.filter(|_| settlement.replay != Replay::Conflict) else { return };
        let took = self.pressed.map(|(begun, store)| Took {
            whole: watch.stopwatch.between(begun, watch.stopwatch.press()),
            store: store.map(|(asked, answered)| watch.stopwatch.between(asked, answered)),
        });
        watch.witness.saw(&Seen { request, rules, claim, matched, settlement, verdict, took });
    }
}
