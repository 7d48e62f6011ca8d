//! Operator adjustments of one caller's counters: reset, credit, debit.
//!
//! An adjustment is the claim of [`Limiter::peek`] with another ask. It is never deferred: if the store is unavailable, the
//! report says so, and the operator may retry.

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Descriptor, Limit, Mode, OnFailure, Reading, Settlement, Source, Span, Timestamp,
    Wait,
};
use tollgate_rules::{LimitArena, Peek, RequestError, Rule};
use tollgate_store::Store;

use crate::explain::{RegionCounter, display_value, owner};
use crate::limiter::Limiter;
use crate::peek::{RuleName, caller_attributes};

/// A change to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Clears the counter as if it had never been used. Slots that requests hold become free.
    Reset,
    /// Gives back this many units, or as many as currently count, the newest first, whenever they were taken.
    Credit(u64),
    /// Takes this many units, past the limit if necessary.
    Debit(u64),
}

/// The state of a caller's counters after an adjustment.
#[derive(Clone, Debug)]
pub struct AdjustmentReport {
    /// The domain whose rules were applied.
    pub domain: String,
    /// The attribute that names the caller.
    pub entity: String,
    /// The time of the adjustment, by the store's clock.
    pub at: Timestamp,
    /// The counters that the adjustment applies to, in the order of the rules.
    pub counters: Vec<AdjustedCounter>,
    /// The rules without such a counter, each with the reason.
    pub left_out: Vec<(RuleName, String)>,
}

/// The result of an adjustment for one counter.
#[derive(Clone, Debug)]
pub struct AdjustedCounter {
    /// The rule that the counter belongs to.
    pub rule: RuleName,
    /// The values that name the counter.
    pub key: Vec<String>,
    /// The limit that applies to the counter.
    pub limit: Limit,
    /// The region that owns the counter, if one of them does: where it was changed.
    pub region: Option<String>,
    /// With `region: global`, the counters of all regions that were to be changed, this region's first; otherwise none. A
    /// debit changes this region's, and reaches the others as those of requests do.
    pub regions: Vec<RegionCounter>,
    /// How many units were cleared, given back or taken; of several regions, in this one.
    pub units: u64,
    /// The reading after the adjustment. If the store did not answer, it does not admit, and its source is not the store.
    pub reading: Reading,
    /// How many units are used after it.
    pub used: u64,
}

impl<S: Store> Limiter<S> {
    /// Adjusts a caller's counters: those of one rule, or of all rules that are keyed by the caller and by no attribute
    /// missing from `others`. `entity` is the attribute that names the caller; the domain's entity is the default. `None`
    /// if neither is set.
    ///
    /// Counters of `region: global` are reset and credited in all regions, each by itself: see [`AdjustedCounter::regions`].
    /// The other counters of one caller change together; those of rules that are not keyed by the domain's entity change one by
    /// one. An unavailable store is not an error: see [`AdjustmentReport::is_stored`]. The adjustment is not repeated
    /// later. A store that did not answer in time may have applied it.
    ///
    /// # Errors
    /// If the domain or the rule is unknown, or the attributes exceed the bounds of a request.
    pub async fn adjust(
        &self,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
        rule: Option<&str>,
        adjustment: Adjustment,
    ) -> Result<Option<AdjustmentReport>, RequestError> {
        let rules = self.rules();
        let domain = rules.domain(domain)?;
        if let Some(name) = rule.filter(|name| domain.rules().iter().all(|rule| rule.name() != *name)) {
            return Err(RequestError::UnknownRule(name.into()));
        }
        let Some(entity) = entity.or(domain.entity()) else { return Ok(None) };
        let attributes = caller_attributes(entity, caller, others);
        let (descriptors, arena) = ([Descriptor::new(&attributes)], LimitArena::default());
        let paths = domain.tree_paths(&attributes);
        let peek = self.peek_claim(domain, &descriptors, &paths, &arena)?;
        let (claim, changed, left_out) = adjustment_claim(peek, rule, adjustment);
        let mut settlement = Settlement::default();
        let mut regions = match adjustment {
            Adjustment::Reset | Adjustment::Credit(_) => {
                self.settle_in_all_regions(&claim, domain, &mut settlement).await
            }
            Adjustment::Debit(_) => {
                self.settle(&claim, &mut settlement).await;
                vec![Vec::new(); claim.charges.len()]
            }
        };
        let read = changed.iter().zip(&claim.charges).zip(&settlement.readings).zip(&mut regions);
        let counters = read.map(|(((rule, charge), reading), regions)| AdjustedCounter {
            rule: RuleName::new(rule),
            key: charge.key.values().iter().map(display_value).collect(),
            limit: charge.limit.clone(),
            region: owner(Some(rule), charge),
            regions: std::mem::take(regions),
            units: if reading.source.is_recorded() { reading.taken } else { 0 },
            reading: adjustment.reading(*reading),
            used: settlement.used(charge, reading),
        });
        Ok(Some(AdjustmentReport {
            domain: domain.name().to_owned(),
            entity: entity.to_owned(),
            at: settlement.at,
            counters: counters.collect(),
            left_out: left_out.into_iter().map(|(rule, why)| (RuleName::new(rule), why)).collect(),
        }))
    }
}

/// Why a concurrency limit is left out of a credit or debit.
const CONCURRENCY: &str = "its slots are held by requests; they can be reset, not credited or debited";

/// Rules without a counter to adjust, each with the reason.
type OmittedRules<'a> = Vec<(&'a Rule, String)>;

/// The claim that applies the adjustment, the rules of its charges, and the rules that are left out.
fn adjustment_claim<'a>(
    peek: Peek<'a>,
    rule: Option<&str>,
    adjustment: Adjustment,
) -> (Claim<'a>, Vec<&'a Rule>, OmittedRules<'a>) {
    let is_selected = |one: &Rule| rule.is_none_or(|name| one.name() == name);
    let mut left_out = peek.left_out;
    left_out.retain(|(rule, _)| is_selected(rule));
    let (mut charges, mut changed) = (SmallVec::new(), Vec::new());
    let peeked = peek.claim.charges.into_iter().zip(peek.rules).map(|(charge, (rule, _))| (charge, rule));
    for (charge, rule) in peeked.filter(|(_, rule)| is_selected(rule)) {
        if charge.limit.algorithm() == Algorithm::Concurrency && adjustment != Adjustment::Reset {
            left_out.push((rule, CONCURRENCY.to_owned()));
            continue;
        }
        let (ask, units, mode) = adjustment.ask();
        // Only the store can apply it, whatever the rule's failure policy is.
        let shortcuts = charge.shortcuts.of_changes();
        charges.push(Charge { ask, units, mode, on_failure: OnFailure::Deny, shortcuts, ..charge });
        changed.push(rule);
    }
    (Claim { charges, ..peek.claim }, changed, left_out)
}

impl Adjustment {
    /// The ask, units and mode of the charge that applies it.
    fn ask(self) -> (Ask, u64, Mode) {
        match self {
            Adjustment::Reset => (Ask::Reset, 0, Mode::Enforce),
            Adjustment::Credit(units) => (Ask::Credit, units, Mode::Enforce),
            // Not `Regardless`, which records a fact and is deferred while the store is unavailable.
            Adjustment::Debit(units) => (Ask::Exactly, units, Mode::Soft),
        }
    }

    /// The reading to report: a debit past the limit is not a refusal.
    fn reading(self, reading: Reading) -> Reading {
        match self {
            Adjustment::Debit(_) if reading.source == Source::Store => {
                Reading { admits: true, wait: Wait::None, delay: Span::ZERO, ..reading }
            }
            _ => reading,
        }
    }
}

impl AdjustmentReport {
    /// Whether the store applied the adjustment, in this region and to the counters that another one owns. If not, the store
    /// is unavailable, and the counters that it did not answer for ([`Reading::source`]) are unchanged as far as is known.
    pub fn is_stored(&self) -> bool {
        self.counters.iter().all(|counter| counter.reading.source.is_recorded())
    }

    /// The other regions in which counters of `region: global` were to be changed, and that did not answer.
    pub fn missed_regions(&self) -> Vec<&str> {
        let mut missed = Vec::new();
        for elsewhere in self.counters.iter().flat_map(|counter| counter.regions.iter().skip(1)) {
            if !elsewhere.is_stored() && !missed.contains(&&*elsewhere.region) {
                missed.push(&*elsewhere.region);
            }
        }
        missed
    }
}
