//! The decision about a request.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::{
    Algorithm, Limit, Mode, Reading, RegionLink, RegionShare, Replay, Settlement, Source, Span, Timestamp, Verdict,
    Wait,
};
use tollgate_rules::tenants::Block;
use tollgate_rules::{AppliedTerms, Domain, MatchedRules, ResolvedBy, Rule};

use crate::in_force::RulesInForce;
use crate::receipt::Receipt;

/// Whether a request may pass, with every limit that applied.
pub struct Decision {
    /// The rules that were in force. Names and limits are looked up in them, not copied.
    pub(crate) in_force: RulesRef,
    pub(crate) matched: MatchedRules,
    pub(crate) verdict: Verdict,
    pub(crate) settlement: Settlement,
    pub(crate) receipt: Option<Box<Receipt>>,
    /// Whether it was decided without the store, because there were too many checks.
    pub(crate) is_shed: bool,
}

/// A reference to the rules in force, which stays valid when others are installed.
pub(crate) enum RulesRef {
    /// Borrowed for one decision.
    Loaded(Guard<Arc<RulesInForce>>),
    /// Owned by a session, for many decisions.
    Shared(Arc<RulesInForce>),
}

impl Deref for RulesRef {
    type Target = RulesInForce;

    #[inline]
    fn deref(&self) -> &RulesInForce {
        match self {
            RulesRef::Loaded(in_force) => in_force,
            RulesRef::Shared(in_force) => in_force,
        }
    }
}

/// The result for one limit.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The limit that applies to the caller and is counted here: with `region: split`, the share of this region.
    pub limit: &'a Limit,
    /// The limit of the caller in all regions together; the same, unless each region has a share.
    pub whole_limit: &'a Limit,
    /// How the limit was resolved.
    pub resolved_by: ResolvedBy,
    /// What happens if the limit has no room.
    pub mode: Mode,
    /// The reading of the limit's counter.
    pub reading: &'a Reading,
    /// The descriptors of the request that involve this limit, one bit each.
    pub touches: u64,
    settlement: &'a Settlement,
}

impl Outcome<'_> {
    /// How many units of the limit are used, as far as this region knows. While limits of `region: global` are lowered, the
    /// reading says what remains of the lowered one.
    pub fn used(&self) -> u64 {
        let quota = self.settlement.lowered_quota(self.limit, self.rule.region().global());
        quota.saturating_sub(self.reading.remaining)
    }

    /// Whether the limit can refuse requests: it is not a shadow or soft limit.
    pub fn is_enforced(&self) -> bool {
        matches!(self.mode, Mode::Enforce | Mode::AnyOf)
    }

    /// Whether the limit is enforced and has no room. A limit of mode `AnyOf` refuses only together with its group.
    pub fn is_exhausted(&self) -> bool {
        self.is_enforced() && !self.reading.admits
    }
}

impl Decision {
    /// An empty decision by these rules.
    #[inline]
    pub(crate) fn new(in_force: RulesRef) -> Decision {
        Decision {
            in_force,
            matched: MatchedRules::default(),
            verdict: Verdict::default(),
            settlement: Settlement::default(),
            receipt: None,
            is_shed: false,
        }
    }

    /// Resets everything except the rules.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.matched.applied.clear();
        self.matched.unlimited.clear();
        self.matched.limits.clear();
        self.matched.block = None;
        self.settlement.readings.clear();
        self.settlement.at = Timestamp::default();
        (self.settlement.link, self.settlement.lowered_to) = (RegionLink::Together, RegionShare::WHOLE);
        (self.matched.needs_receipt, self.matched.not_held) = (false, 0);
        (self.matched.bad_costs, self.matched.dropped) = (0, 0);
        self.receipt = None;
        self.is_shed = false;
    }

    /// Whether the request may pass.
    pub fn allowed(&self) -> bool {
        self.verdict.allowed
    }

    /// How long the caller should wait before it retries.
    pub fn wait(&self) -> Wait {
        self.verdict.wait
    }

    /// How long an allowed request should be delayed so that requests leave evenly spaced.
    pub fn delay(&self) -> Span {
        self.verdict.delay
    }

    /// The least certain source among the enforced limits.
    pub fn source(&self) -> Source {
        self.verdict.source
    }

    /// How other regions were doing, if units of its limits are debited there: unless they are together, such limits may be
    /// lowered.
    pub fn region_link(&self) -> RegionLink {
        self.settlement.link
    }

    /// Whether it was decided without the store, because there were too many checks. Its limits may have been counted
    /// locally.
    pub fn is_shed(&self) -> bool {
        self.is_shed
    }

    /// The time of the decision, by the store's clock.
    pub fn at(&self) -> Timestamp {
        self.settlement.at
    }

    /// The generation of the ruleset that was in force.
    pub fn generation(&self) -> u64 {
        self.in_force.rules.generation()
    }

    /// The limit that refused the request.
    pub fn denied_by(&self) -> Option<Outcome<'_>> {
        self.outcome(self.verdict.denied_by?)
    }

    /// The enforced limit with the fewest units left: the one to report to clients.
    pub fn tightest(&self) -> Option<Outcome<'_>> {
        self.outcome(self.verdict.tightest?)
    }

    /// The soft limits that the request exceeded. Empty if it was refused.
    pub fn signals(&self) -> impl Iterator<Item = Outcome<'_>> {
        // A scan of modes and readings, without lookups: this runs for every decision, and nearly all have no signals.
        let readings = if self.verdict.allowed { &self.settlement.readings[..] } else { &[] };
        let applied = self.matched.applied.iter().zip(readings).enumerate();
        let passed = applied.filter(|(_, (applied, reading))| applied.mode == Mode::Soft && !reading.admits);
        passed.filter_map(|(at, _)| self.outcome(at))
    }

    /// The receipt to settle when the request has ended, if one is needed or was requested.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }

    /// Takes the receipt out of the decision.
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        self.receipt.take().map(|receipt| *receipt)
    }

    /// The hold of the shortest concurrency slot that was taken, if any: the slot must be extended before it ends. The
    /// receipt as a whole may be valid for longer.
    pub fn shortest_hold(&self) -> Option<Span> {
        let held = self.outcomes().filter(|one| one.limit.algorithm() == Algorithm::Concurrency);
        held.filter(|one| one.reading.taken > 0).map(|one| one.limit.period().span()).min()
    }

    /// Whether this is a first decision, a replay, or a conflict of idempotency keys.
    pub fn replay(&self) -> Replay {
        self.settlement.replay
    }

    /// The block of the caller or of its address, if there is one: the request was refused for it, or only marked.
    pub fn block(&self) -> Option<Block> {
        self.matched.block
    }

    /// Whether the request passed because no rule applied to it.
    #[inline]
    pub fn is_unmatched(&self) -> bool {
        // A replay of a decision by other rules has no limits either.
        self.matched.is_empty() && self.verdict.allowed && self.settlement.replay == Replay::First
    }

    /// How many concurrency limits did not apply because the caller can't release slots.
    pub fn not_held(&self) -> u32 {
        self.matched.not_held
    }

    /// How many rules counted the request as 1 because the attribute with its cost is not a whole number.
    pub fn bad_costs(&self) -> u32 {
        self.matched.bad_costs
    }

    /// How many limits were left out because too many applied: only such as fail open.
    pub fn dropped_limits(&self) -> u32 {
        self.matched.dropped
    }

    /// Every limit that applied to the request.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        (0..self.matched.applied.len()).filter_map(|at| self.outcome(at))
    }

    /// The rules that apply without a limit, each with the descriptors that involve it, one bit each.
    pub fn unlimited(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.matched.unlimited.iter().filter_map(|applied| Some((self.domain().rule(applied)?, applied.touches)))
    }

    /// The domain of the request.
    pub fn domain(&self) -> &Domain {
        &self.in_force.rules.domains()[self.matched.domain]
    }

    fn outcome(&self, at: usize) -> Option<Outcome<'_>> {
        let applied = self.matched.applied.get(at)?;
        let rule = self.domain().rule(applied)?;
        let limit_at = |place: u16| self.matched.limits.get(usize::from(place));
        let (limit, whole_limit) = match applied.terms {
            AppliedTerms::Tier(tier) => (rule.limit(tier)?, rule.whole_limit(tier)?),
            AppliedTerms::Override(place) if rule.region().share().is_some() => {
                (limit_at(place)?, limit_at(place + 1)?)
            }
            AppliedTerms::Requested(place) | AppliedTerms::Override(place) => (limit_at(place)?, limit_at(place)?),
        };
        Some(Outcome {
            rule,
            limit,
            whole_limit,
            resolved_by: applied.by,
            mode: applied.mode,
            reading: self.settlement.readings.get(at)?,
            touches: applied.touches,
            settlement: &self.settlement,
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
