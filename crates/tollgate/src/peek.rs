//! Peeking at one caller's counters.

use smallvec::SmallVec;
use tollgate_core::{Descriptor, Settlement, Span, Timestamp};
use tollgate_rules::model::Headers;
use tollgate_rules::{
    Domain, LimitArena, Peek, RequestError, ResolvedBy, Rule, Ruleset, TenantContext, TierOrigin, TreePaths,
};
use tollgate_store::Store;

use crate::explain::{CounterStatus, display_value, owner};
use crate::ids;
use crate::limiter::Limiter;

/// The state of a caller's counters. Reading it consumes nothing.
#[derive(Clone, Debug)]
pub struct CallerCounters {
    /// The domain whose rules were applied.
    pub domain: String,
    /// The attribute that names the caller.
    pub entity: String,
    /// The time of the readings, by the store's clock.
    pub at: Timestamp,
    /// The tier. `None` if requests name it, and this process has seen none of the caller.
    pub tier: Option<CallerTier>,
    /// Every counter that is keyed by the caller, in the order of the rules.
    pub counters: Vec<(RuleName, CounterStatus)>,
    /// The rules without a counter for the caller, each with the reason.
    pub left_out: Vec<(RuleName, String)>,
}

/// The tier of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerTier {
    /// The tier's name.
    pub name: String,
    /// Where it comes from.
    pub by: TierOrigin,
    /// If the caller's last request decided it: how long ago that was, in whole minutes.
    pub seen: Option<Span>,
}

/// The name of a rule, and its visibility to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// The rule's name.
    pub name: String,
    /// Which response headers may show the rule.
    pub headers: Headers,
}

/// Where counters of `region: global` are read.
#[derive(Clone, Copy, Debug)]
enum PeekPlaces {
    /// In this region.
    Here,
    /// In all regions.
    AllRegions,
}

/// The attributes that identify a caller's counters: the entity first.
pub(crate) type CallerAttributes<'a> = SmallVec<[(&'a str, &'a str); 4]>;

/// A caller's attributes: its entity, then all others.
pub(crate) fn caller_attributes<'a>(
    entity: &'a str,
    caller: &'a str,
    others: &[(&'a str, &'a str)],
) -> CallerAttributes<'a> {
    std::iter::once((entity, caller)).chain(others.iter().copied()).collect()
}

impl<S: Store> Limiter<S> {
    /// Reads the caller's counters under every rule that is keyed by the caller alone, or by the caller and attributes in
    /// `others`. `entity` is the attribute that names the caller; the domain's entity is the default. `None` if neither
    /// is set.
    ///
    /// # Errors
    /// If the domain is unknown, or the attributes exceed the bounds of a request.
    pub async fn peek(
        &self,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
    ) -> Result<Option<CallerCounters>, RequestError> {
        self.peek_at(PeekPlaces::Here, domain, entity, caller, others).await
    }

    /// Like [`peek`](Self::peek), and also reads the counters of rules with `region: global` in all other regions:
    /// [`CounterStatus::regions`].
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub async fn peek_in_all_regions(
        &self,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
    ) -> Result<Option<CallerCounters>, RequestError> {
        self.peek_at(PeekPlaces::AllRegions, domain, entity, caller, others).await
    }

    async fn peek_at(
        &self,
        places: PeekPlaces,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
    ) -> Result<Option<CallerCounters>, RequestError> {
        let rules = self.rules();
        let domain = rules.domain(domain)?;
        let Some(entity) = entity.or(domain.entity()) else { return Ok(None) };
        let mut attributes = caller_attributes(entity, caller, others);
        let tier = self.last_tier(&rules, domain, entity, caller, others);
        if let (Some((tier, _)), Some(attribute)) = (tier, domain.tier_attribute()) {
            attributes.push((attribute, tier));
        }
        let (descriptors, arena) = ([Descriptor::new(&attributes)], LimitArena::default());
        let paths = domain.tree_paths(&attributes);
        let peek = self.peek_claim(domain, &descriptors, &paths, &arena)?;
        let mut settlement = Settlement::default();
        let regions = match places {
            PeekPlaces::Here => {
                self.settle(&peek.claim, &mut settlement).await;
                vec![Vec::new(); peek.claim.charges.len()]
            }
            PeekPlaces::AllRegions => self.settle_in_all_regions(&peek.claim, domain, &mut settlement).await,
        };
        let read = peek.rules.iter().zip(&peek.claim.charges).zip(&settlement.readings).zip(regions);
        // Without the tier, the limit would be a guess.
        let is_known =
            |rule: &Rule, by: ResolvedBy| peek.tier.is_some() || !rule.is_by_tier() || by != ResolvedBy::Tier;
        let unknown = peek.rules.iter().filter(|(rule, by)| !is_known(rule, *by));
        let unknown = unknown.map(|(rule, _)| (RuleName::new(rule), rule.describe_tiers(domain)));
        let left_out =
            peek.left_out.iter().map(|(rule, why)| (RuleName::new(rule), why.clone())).chain(unknown).collect();
        let read = read.filter(|((((rule, by), _), _), _)| is_known(rule, *by));
        let counters = read.map(|((((rule, by), charge), reading), regions)| {
            let key = charge.key.values().iter().map(display_value).collect();
            let (limit, mode) = (charge.limit.clone(), charge.mode);
            let region = owner(Some(rule), charge);
            let (reading, used) = (*reading, settlement.used(charge, reading));
            let counter = CounterStatus { key, limit, by: *by, units: 0, mode, reading, used, region, regions };
            (RuleName::new(rule), counter)
        });
        Ok(Some(CallerCounters {
            domain: domain.name().to_owned(),
            entity: entity.to_owned(),
            at: settlement.at,
            tier: peek.tier.map(|(name, by)| CallerTier {
                name: name.to_owned(),
                by,
                seen: tier.filter(|_| by == TierOrigin::Request).map(|(_, ago)| ago),
            }),
            counters: counters.collect(),
            left_out,
        }))
    }

    /// The tier that the caller's last request named, and how long ago, unless `others` has it.
    fn last_tier<'d>(
        &self,
        rules: &Ruleset,
        domain: &'d Domain,
        entity: &str,
        caller: &str,
        others: &[(&str, &str)],
    ) -> Option<(&'d str, Span)> {
        let attribute = domain.tier_attribute()?;
        if domain.entity() != Some(entity) || others.iter().any(|(name, _)| *name == attribute) {
            return None;
        }
        let number = rules.domains().iter().position(|other| std::ptr::eq(other, domain))?;
        let (tier, ago) = self.caller_tiers.last(number, caller, self.clock().now())?;
        // The tiers may have changed meanwhile.
        Some((&domain.tiers().get(usize::from(tier))?.name, ago))
    }

    /// The claim that peeks at a caller's counters. `paths` are the domain's tree paths for the attributes of the descriptor.
    pub(crate) fn peek_claim<'a>(
        &self,
        domain: &'a Domain,
        descriptors: &'a [Descriptor<'a>; 1],
        paths: &'a TreePaths<'a>,
        arena: &'a LimitArena,
    ) -> Result<Peek<'a>, RequestError> {
        let known = TenantContext { tenants: &self.tenants(), now: &|| self.clock().now(), arena };
        domain.peek(descriptors, paths, ids::next(), &known)
    }
}

impl RuleName {
    pub(crate) fn new(rule: &Rule) -> RuleName {
        RuleName { name: rule.name().to_owned(), headers: rule.headers() }
    }
}
