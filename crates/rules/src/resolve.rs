//! Resolves a request to a claim: which limits apply, with which keys and for how many units. Pure, on one snapshot
//! of the rules.

use smallvec::SmallVec;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Descriptor, Key, Limit, Mode, OnFailure, ReceiptWish, Request, Shortcuts, Timestamp,
    Value,
};

use crate::applied::{AppliedRule, AppliedTerms, MatchedRules};
use crate::applies::Units;
use crate::attributes::{Attributes, Outline, attribute_places};
use crate::error::RequestError;
use crate::index::Id;
use crate::model::RuleMode;
use crate::overrides::CapRef;
use crate::plan::{Plan, PlannedRule};
use crate::rule::Rule;
use crate::ruleset::{Domain, Ruleset};
use crate::tenants::{BlockAction, LimitArena, ResolvedBy, Tenant, TenantLookup, Tenants};

/// A claim, and the rule of each of its charges.
#[derive(Debug)]
pub struct ResolvedRequest<'a> {
    /// The domain.
    pub domain: &'a Domain,
    /// The claim for the store.
    pub claim: Claim<'a>,
    /// The rule of each charge, in order.
    pub applied: SmallVec<[AppliedRule; 4]>,
    /// Rules that apply without a limit.
    pub unlimited: SmallVec<[AppliedRule; 1]>,
}

/// The tenants of a request, and what a lookup needs.
#[derive(Clone, Copy)]
pub struct TenantContext<'a, 't> {
    /// The tenants.
    pub tenants: &'t Tenants,
    /// The current time. Called only if it matters.
    pub now: &'t dyn Fn() -> Timestamp,
    /// Stores limits that no rule has.
    pub arena: &'a LimitArena,
}

impl Ruleset {
    /// Resolves a request without tenants.
    pub fn resolve<'a>(&'a self, request: &Request<'a>, id: ClaimId) -> Result<ResolvedRequest<'a>, RequestError> {
        self.resolve_owned(request, id, None)
    }

    /// Resolves a request of a tenant.
    pub fn resolve_for_tenant<'a>(
        &'a self,
        request: &Request<'a>,
        id: ClaimId,
        context: &TenantContext<'a, '_>,
    ) -> Result<ResolvedRequest<'a>, RequestError> {
        self.resolve_owned(request, id, Some(context))
    }

    fn resolve_owned<'a>(
        &'a self,
        request: &Request<'a>,
        id: ClaimId,
        context: Option<&TenantContext<'a, '_>>,
    ) -> Result<ResolvedRequest<'a>, RequestError> {
        let mut claim = Claim { id, charges: SmallVec::new(), once: None, timeout: None };
        let mut matched = MatchedRules::default();
        self.resolve_into(request, context, &mut claim, &mut matched)?;
        let MatchedRules { domain, applied, unlimited, .. } = matched;
        Ok(ResolvedRequest { domain: &self.domains()[domain], claim, applied, unlimited })
    }

    /// Like [`resolve`](Self::resolve), but adds to an empty claim in place: a claim is large to move, and every
    /// request takes this path.
    #[inline]
    pub fn resolve_into<'a>(
        &'a self,
        request: &Request<'a>,
        context: Option<&TenantContext<'a, '_>>,
        claim: &mut Claim<'a>,
        matched: &mut MatchedRules,
    ) -> Result<(), RequestError> {
        matched.domain = self.domain_of(request.domain)?;
        if request.once.is_some_and(|name| name.is_empty() || name.len() > Request::MAX_ONCE_BYTES) {
            return Err(RequestError::BadOnce);
        }
        let is_named = request.claim.is_some();
        let holds = match request.ask {
            Ask::Exactly | Ask::UpTo => (is_named || request.receipt != ReceiptWish::Never).then_some(request.ask),
            Ask::Return { .. } => is_named.then_some(request.ask),
            // The final cost is known when the request has ended. Returns of holds ignore the time.
            Ask::Regardless => is_named.then_some(Ask::Return { taken_at: Timestamp::default() }),
            Ask::Credit => None,
            Ask::Reset => Some(Ask::Reset),
        };
        // A return with a claim id releases the holds of that claim.
        let rates = !(holds.is_some() && matches!(request.ask, Ask::Return { .. }));
        let domain = &self.domains()[matched.domain];
        RequestResolver { domain, claim, matched, ask: request.ask, holds, rates, context, tenant: None }.fill(request)
    }

    /// The index of the domain that a request names.
    #[inline]
    fn domain_of(&self, name: Option<&str>) -> Result<usize, RequestError> {
        self.domain_number(name).ok_or(match name {
            Some(_) => RequestError::UnknownDomain,
            None => RequestError::NoDomain,
        })
    }

    /// The domain of this name, or the only one.
    ///
    /// # Errors
    /// If it does not exist, or if none is named and there are several.
    pub fn domain(&self, name: Option<&str>) -> Result<&Domain, RequestError> {
        Ok(&self.domains()[self.domain_of(name)?])
    }
}

impl<'a> ResolvedRequest<'a> {
    /// The rule of a charge.
    pub fn rule(&self, charge: usize) -> Option<&'a Rule> {
        self.domain.rule(self.applied.get(charge)?)
    }
}

/// A claim that is being resolved.
struct RequestResolver<'r, 'a> {
    domain: &'a Domain,
    claim: &'r mut Claim<'a>,
    matched: &'r mut MatchedRules,
    ask: Ask,
    /// The ask for concurrency limits. `None` if they do not apply.
    holds: Option<Ask>,
    /// Whether the other limits apply.
    rates: bool,
    context: Option<&'r TenantContext<'a, 'r>>,
    /// The caller's tenant, if it has one.
    tenant: Option<Tenant<'r>>,
}

impl<'a> RequestResolver<'_, 'a> {
    fn fill(&mut self, request: &Request<'a>) -> Result<(), RequestError> {
        let domain = self.domain;
        let outline = Outline::of(request)?;
        let make = || Plan::new(request, &domain.attributes, &domain.index, &domain.rules);
        let plan = domain.plans.get(request, &outline, make);
        let looked_up;
        let places = match plan {
            Some(plan) => &plan.places,
            None => {
                looked_up = attribute_places(request, &domain.attributes);
                &looked_up
            }
        };
        let attributes = Attributes::new(request, &outline, places);
        let lookup =
            self.context.map(|context| TenantLookup::new(context.tenants, domain.digest, domain.caller(&attributes)));
        let mut candidates = SmallVec::new();
        let rules = match plan {
            Some(plan) if plan.by_value.is_empty() => &plan.rules[..],
            _ => {
                domain.find_candidates(plan, &attributes, &mut candidates);
                &candidates
            }
        };
        self.tenant =
            self.context.zip(lookup).and_then(|(context, lookup)| Tenant::find(context.tenants, &lookup, context.now));
        if let Some(tenant) = self.tenant.as_ref().filter(|_| self.ask == Ask::Exactly) {
            self.matched.block = tenant.block(domain.addresses.iter().filter_map(|address| attributes.get(*address)));
            if self.matched.block.is_some_and(|block| block.action.refuses()) {
                return Ok(());
            }
        }
        let tier = domain.tier(&attributes, self.tenant.as_ref());
        // A domain has at most 64 tiers.
        self.matched.tier = tier as u16;
        for planned in rules {
            let rule = &domain.rules[planned.number as usize];
            if planned.is_certain || rule.misses(&attributes, rule.pivot).is_none() {
                self.add_listed(planned.number, rule, &attributes, tier);
            }
        }
        if !domain.tree.is_empty() {
            self.add_tree(request, tier);
        }
        if outline.has_limits {
            for (number, descriptor) in request.descriptors.iter().enumerate() {
                if let Some(limit) = descriptor.limit {
                    self.add_requested(number, descriptor, limit, request, tier)?;
                }
            }
        }
        if self.matched.block.is_some_and(|block| block.action == BlockAction::Admitted) {
            self.admit();
        }
        match self.claim.charges.len() {
            ..=Claim::MAX_CHARGES => Ok(()),
            _ => self.drop_excess(),
        }
    }

    /// Puts all limits in shadow mode.
    #[cold]
    fn admit(&mut self) {
        let charges = self.claim.charges.iter_mut().map(|charge| &mut charge.mode);
        for mode in charges.chain(self.matched.applied.iter_mut().map(|applied| &mut applied.mode)) {
            *mode = Mode::Shadow;
        }
    }

    /// Keeps as many charges as a claim may have. Those that are dropped are answered by their failure policies, which
    /// must not refuse.
    #[cold]
    fn drop_excess(&mut self) -> Result<(), RequestError> {
        let (charges, applied) = (std::mem::take(&mut self.claim.charges), std::mem::take(&mut self.matched.applied));
        let mut both: Vec<_> = charges.into_iter().zip(applied).collect();
        let may_be_dropped = |charge: &Charge<'_>| charge.on_failure != OnFailure::Deny;
        // The sort is stable: what stays is in order.
        both.sort_by_key(|(charge, _)| may_be_dropped(charge));
        let dropped = both.split_off(Claim::MAX_CHARGES);
        if !dropped.iter().all(|(charge, _)| may_be_dropped(charge)) {
            return Err(RequestError::TooMany { what: "limits that apply", max: Claim::MAX_CHARGES });
        }
        self.matched.dropped = u32::try_from(dropped.len()).unwrap_or(u32::MAX);
        for (charge, applied) in both {
            self.claim.charges.push(charge);
            self.matched.applied.push(applied);
        }
        Ok(())
    }

    #[inline(always)]
    fn add_listed(&mut self, number: Id, rule: &'a Rule, attributes: &Attributes<'_, 'a>, tier: usize) {
        let tier = rule.row(tier, attributes);
        let Some((cap, by)) = self.cap(rule, tier) else { return };
        let Some(units) = rule.units(attributes) else { return };
        let mut units = match units {
            Units::Known(units) => units,
            Units::Malformed => {
                self.matched.bad_costs += 1;
                1
            }
        };
        if cap.is_concurrency() {
            units = match self.holds {
                None => {
                    self.matched.not_held += u32::from(self.ask == Ask::Exactly);
                    return;
                }
                // A request that has ended releases one hold, whatever its cost.
                Some(Ask::Return { .. }) => 1,
                // One request in flight, or a peek.
                Some(_) => attributes.cost.min(1),
            };
        }
        let mut values = SmallVec::new();
        for part in &rule.key {
            values.push(rule.key_value(part, attributes));
        }
        self.add(number, tier, rule.touches(attributes), (cap, by), values, units);
    }

    fn add_tree(&mut self, request: &Request<'a>, tier: usize) {
        let domain = self.domain;
        let walks: SmallVec<[_; 4]> =
            request.descriptors.iter().map(|descriptor| domain.tree.walk(descriptor.entries)).collect();
        let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
        for (walk, descriptor) in walks.iter().zip(request.descriptors).filter(|(_, one)| one.limit.is_none()) {
            for met in domain.tree.met(walk, descriptor.entries) {
                if domain.rules[met.limit.rule as usize].mode != RuleMode::Off {
                    replaced.extend(met.limit.replaces.iter().map(|name| &**name));
                }
            }
        }
        for (number, (walk, descriptor)) in walks.iter().zip(request.descriptors).enumerate() {
            if descriptor.limit.is_some() {
                continue;
            }
            let units = descriptor.hits.unwrap_or(request.cost);
            for met in domain.tree.met(walk, descriptor.entries) {
                let rule = &domain.rules[met.limit.rule as usize];
                let is_replaced = met.limit.name.as_deref().is_some_and(|name| replaced.contains(&name));
                if is_replaced || rule.mode == RuleMode::Off {
                    continue;
                }
                if let Some(cap) = self.cap(rule, tier) {
                    self.add(met.limit.rule, tier, 1 << number, cap, met.values, units);
                }
            }
        }
    }

    /// Adds a limit that came with the request.
    fn add_requested(
        &mut self,
        number: usize,
        descriptor: &Descriptor<'a>,
        limit: &'a Limit,
        request: &Request<'a>,
        tier: usize,
    ) -> Result<(), RequestError> {
        let requested = &self.domain.requested;
        let key = requested.key(descriptor, limit.period().span()).ok_or(RequestError::UnknownUnit)?;
        let on_failure = requested.rule.tiers[tier].on_failure;
        let units = descriptor.hits.unwrap_or(request.cost);
        if !self.rates {
            return Ok(());
        }
        self.claim.charges.push(Charge {
            key,
            limit,
            ask: self.ask,
            units,
            mode: Mode::Enforce,
            on_failure,
            shortcuts: Shortcuts::Refusals,
        });
        let terms = AppliedTerms::Requested(self.matched.limits.len() as u16);
        let (by, mode) = (ResolvedBy::Request, Mode::Enforce);
        self.matched.applied.push(AppliedRule { rule: None, terms, by, mode, touches: 1 << number });
        self.matched.limits.push(limit.clone());
        Ok(())
    }

    /// The cap of the caller under a rule, and how it was chosen.
    #[inline(always)]
    fn cap(&self, rule: &'a Rule, tier: usize) -> Option<(CapRef<'a>, ResolvedBy)> {
        match self.context {
            Some(context) => rule.cap_under(tier, self.tenant.as_ref(), context.arena),
            None => rule.own_cap(tier),
        }
    }

    #[inline(always)]
    fn add(
        &mut self,
        number: Id,
        tier: usize,
        touches: u64,
        (cap, by): (CapRef<'a>, ResolvedBy),
        values: SmallVec<[Value<'a>; 2]>,
        units: u64,
    ) {
        let rule = &self.domain.rules[number as usize];
        let applied = |terms, mode| AppliedRule { rule: Some(number), terms, by, mode, touches };
        let CapRef::Limit { limit, scope, whole } = cap else {
            self.matched.unlimited.push(applied(AppliedTerms::Tier(tier as u16), Mode::Enforce));
            return;
        };
        let ask = match self.holds {
            Some(ask) if cap.is_concurrency() => ask,
            _ if self.rates => self.ask,
            _ => return,
        };
        let units = match rule.ending.reserve_max {
            Some(max) if self.ask == Ask::Exactly => units.min(share(limit.quota(), max)),
            _ => units,
        };
        let key = Key::new(scope, values);
        let mode = rule.mode_for(&key);
        let key = rule.in_its_region(key, self.tenant.as_ref());
        let (on_failure, shortcuts) = (rule.tiers[tier].on_failure, rule.shortcuts(limit));
        self.matched.needs_receipt |= rule.needs_receipt(limit);
        self.claim.charges.push(Charge { key, limit, ask, units, mode, on_failure, shortcuts });
        let terms = match by {
            ResolvedBy::Default | ResolvedBy::Tier => AppliedTerms::Tier(tier as u16),
            _ => {
                self.matched.limits.push(limit.clone());
                self.matched.limits.extend(whole.cloned());
                AppliedTerms::Override((self.matched.limits.len() - 1 - usize::from(whole.is_some())) as u16)
            }
        };
        self.matched.applied.push(applied(terms, mode));
    }
}

/// A number of basis points of a quota, and at least one unit.
fn share(quota: u64, bps: u16) -> u64 {
    let share = u128::from(quota) * u128::from(bps) / 10_000;
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

impl Domain {
    /// The caller's identity.
    #[inline]
    pub(crate) fn caller<'a>(&self, attributes: &Attributes<'_, 'a>) -> Option<&'a str> {
        attributes.get(self.caller?)
    }

    /// The index of the caller's tier: the tenant's, otherwise the one that the request names, otherwise the default
    /// one.
    #[inline]
    pub(crate) fn tier(&self, attributes: &Attributes<'_, '_>, tenant: Option<&Tenant<'_>>) -> usize {
        if let Some(digest) = tenant.and_then(Tenant::tier)
            && let Some(index) = self.tier_digests.iter().position(|tier| *tier == digest)
        {
            return index;
        }
        self.tier_from
            .and_then(|attribute| attributes.get(attribute))
            .and_then(|name| self.tiers.iter().position(|tier| tier.name == name))
            .unwrap_or(self.default_tier)
    }

    /// The attribute with which requests name the caller's tier, if they do.
    pub fn tier_attribute(&self) -> Option<&str> {
        self.tier_from_name.as_deref()
    }

    /// The caller of a request, and the index of the tier that the request names.
    pub fn requested_tier<'a>(&self, request: &Request<'a>) -> Option<(&'a str, u16)> {
        let entries = || request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
        let value = |name: &str| entries().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let caller = value(self.entity()?)?;
        let named = value(self.tier_attribute()?);
        let tier = named.and_then(|name| self.tiers.iter().position(|tier| tier.name == name));
        Some((caller, u16::try_from(tier.unwrap_or(self.default_tier)).ok()?))
    }

    /// The rules of the list that may apply, in order: those of the plan, if there is one, and those that values lead to.
    pub(crate) fn find_candidates(
        &self,
        plan: Option<&Plan>,
        attributes: &Attributes<'_, '_>,
        candidates: &mut SmallVec<[PlannedRule; 8]>,
    ) {
        let mut found = SmallVec::new();
        match plan {
            Some(plan) => {
                found.extend(plan.rules.iter().map(|rule| rule.number));
                for attribute in &plan.by_value {
                    if let Some(value) = attributes.get(*attribute) {
                        self.index.find_by_value(*attribute, value, attributes, &mut found);
                    }
                }
            }
            None => self.index.find(attributes, &mut found),
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        candidates.extend(found.iter().map(|number| PlannedRule { number: *number, is_certain: false }));
    }
}
