//! The answer to a request.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::{Algorithm, Limit, Mode, Reading, Replay, Settlement, Source, Span, Timestamp, Verdict, Wait};
use tollgate_rules::tenants::Block;
use tollgate_rules::{AppliedTerms, Domain, Matched, ResolvedBy, Rule, Ruleset};

use crate::receipt::Receipt;

/// Whether a request may pass, and every limit that had a say.
pub struct Decision {
    /// The rules by which it was reached: names and limits are looked up in them, not copied.
    pub(crate) rules: Held,
    pub(crate) matched: Matched,
    pub(crate) verdict: Verdict,
    pub(crate) settlement: Settlement,
    pub(crate) receipt: Option<Box<Receipt>>,
}

/// Rules that stay as they are while somebody looks at them.
pub(crate) enum Held {
    /// For one decision.
    Loaded(Guard<Arc<Ruleset>>),
    /// For as long as they are in force.
    Kept(Arc<Ruleset>),
}

impl Deref for Held {
    type Target = Ruleset;

    fn deref(&self) -> &Ruleset {
        match self {
            Held::Loaded(rules) => rules,
            Held::Kept(rules) => rules,
        }
    }
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What the caller is held to.
    pub limit: &'a Limit,
    /// How that came to be.
    pub resolved_by: ResolvedBy,
    /// What follows if there is no room.
    pub mode: Mode,
    /// What its counter says.
    pub reading: &'a Reading,
    /// The descriptors of the request that have to do with it, a bit for each.
    pub touches: u64,
}

impl Decision {
    /// Forgets what was decided, but for the rules.
    pub(crate) fn clear(&mut self) {
        self.matched.applied.clear();
        self.matched.unlimited.clear();
        self.matched.limits.clear();
        self.matched.block = None;
        self.settlement.readings.clear();
        self.settlement.at = Timestamp::default();
        (self.matched.needs_receipt, self.matched.not_held) = (false, 0);
        self.receipt = None;
    }

    /// Whether the request may pass.
    pub fn allowed(&self) -> bool {
        self.verdict.allowed
    }

    /// How long the caller should stay away.
    pub fn wait(&self) -> Wait {
        self.verdict.wait
    }

    /// How long an allowed request should be held back so that requests leave evenly spaced.
    pub fn delay(&self) -> Span {
        self.verdict.delay
    }

    /// The least certain source among the limits that are enforced.
    pub fn source(&self) -> Source {
        self.verdict.source
    }

    /// When it was reached, by the store's clock.
    pub fn at(&self) -> Timestamp {
        self.settlement.at
    }

    /// Which ruleset it was reached by.
    pub fn generation(&self) -> u64 {
        self.rules.generation()
    }

    /// The limit that refused.
    pub fn denied_by(&self) -> Option<Outcome<'_>> {
        self.outcome(self.verdict.denied_by?)
    }

    /// The enforced limit with the fewest units left: what a client is told.
    pub fn tightest(&self) -> Option<Outcome<'_>> {
        self.outcome(self.verdict.tightest?)
    }

    /// The soft limits that the request went past: none if it did not pass.
    pub fn signals(&self) -> impl Iterator<Item = Outcome<'_>> {
        // By what is at hand: nearly all decisions have none, and are asked.
        let readings = if self.verdict.allowed { &self.settlement.readings[..] } else { &[] };
        let applied = self.matched.applied.iter().zip(readings).enumerate();
        let passed = applied.filter(|(_, (applied, reading))| applied.mode == Mode::Soft && !reading.admits);
        passed.filter_map(|(at, _)| self.outcome(at))
    }

    /// What is to be settled when the request has ended, if something is or the caller wanted it.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }

    /// How long the shortest of the slots that it took is held, if it took any: by then it must be told that the request is
    /// running. A receipt as a whole may be settled for longer than that.
    pub fn held_for(&self) -> Option<Span> {
        let held = self.outcomes().filter(|one| one.limit.algorithm() == Algorithm::Concurrency);
        held.filter(|one| one.reading.taken > 0).map(|one| one.limit.period().span()).min()
    }

    /// Whether it was decided now, or before under the same name, or something else was.
    pub fn replay(&self) -> Replay {
        self.settlement.replay
    }

    /// The block that the caller or its address is under, if it is: it was refused for that, or is only marked.
    pub fn block(&self) -> Option<Block> {
        self.matched.block
    }

    /// How many limits on requests in flight did not apply, since the caller could not release what it would hold.
    pub fn not_held(&self) -> u32 {
        self.matched.not_held
    }

    /// Every limit that the request met.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        (0..self.matched.applied.len()).filter_map(|at| self.outcome(at))
    }

    /// The rules that apply and do not limit, with the descriptors that have to do with each, a bit for each.
    pub fn unlimited(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.matched.unlimited.iter().filter_map(|applied| Some((self.domain().rule(applied)?, applied.touches)))
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.rules.domains()[self.matched.domain]
    }

    fn outcome(&self, at: usize) -> Option<Outcome<'_>> {
        let applied = self.matched.applied.get(at)?;
        let rule = self.domain().rule(applied)?;
        Some(Outcome {
            rule,
            limit: match applied.terms {
                AppliedTerms::Tier(tier) => rule.limit(tier)?,
                AppliedTerms::Requested(place) | AppliedTerms::Override(place) => {
                    self.matched.limits.get(usize::from(place))?
                }
            },
            resolved_by: applied.by,
            mode: applied.mode,
            reading: self.settlement.readings.get(at)?,
            touches: applied.touches,
        })
    }
}

impl std::fmt::Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decision")
            .field("verdict", &self.verdict)
            .field("outcomes", &self.outcomes().map(|one| (one.rule.name(), one.reading)).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
